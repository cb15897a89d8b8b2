//! The time of one id within the server as a picture: a bar for each way to get an id, the shortest
//! first. A round trip to another service is not among them: from a client, each of these ways
//! needs one as well.

use plotters::element::Rectangle;
use plotters::prelude::{IntoDrawingArea, SVGBackend};
use plotters::style::text_anchor::HPos;

use crate::Failure;
use crate::chart::{FAINT, GRID, PAGE, REACHED, REPORTED, TEXT, filled, line, styled, text};
use crate::figure::Figure;
use crate::report::shown;
use crate::series::{Series, median};

/// The ways: the group and the name of what is measured, and the words of the chart and of the
/// table. The first is the one that the chart is about.
const WAYS: [(&str, &str, &str); 7] = [
    ("calls", "snowflake_next()", "snowflake_next()"),
    ("calls", "nextval(), cache 100", "nextval(), CACHE 100"),
    ("calls", "nextval(), cache 1", "nextval()"),
    ("calls", "uuidv7()", "uuidv7()"),
    ("calls", "gen_random_uuid()", "gen_random_uuid(), UUIDv4"),
    ("calls", "time, shard and nextval() in PL/pgSQL", "a function in PL/pgSQL"),
    ("redis", "Redis INCR", ROUND_TRIP),
];

/// In the table only.
const ROUND_TRIP: &str = "a round trip to Redis";

/// Positions, in pixels of a picture that a page may scale.
const WIDTH: i32 = 840;
const HEAD: i32 = 66;
const ROW: i32 = 34;
const FOOT: i32 = 62;
const AXIS: (i32, i32) = (250, 730);
const FONT_SIZE: i32 = 19;
const SMALL: i32 = 16;

/// How many lines divide the axis.
const LINES: i32 = 4;

/// Draws the ways that were measured. `None` if none was.
///
/// # Errors
///
/// Never, because writing to a string does not fail.
pub fn svg(foot: &str, figures: &[(&str, Figure)]) -> Result<Option<String>, Failure> {
    let medians = times(figures).into_iter().map(|(label, values)| (label, median(&values)));
    let mut ways: Vec<_> = medians.filter(|(label, _)| *label != ROUND_TRIP).collect();
    ways.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    let Some((_, longest)) = ways.last() else { return Ok(None) };
    let axis = Axis::up_to(*longest);
    let height = HEAD + ROW * ways.len() as i32 + FOOT;
    let bottom = height - FOOT;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
        area.draw(&Rectangle::new([(0, 0), (WIDTH, height)], filled(PAGE)))?;
        area.draw(&text("Time of one call, shorter is better", (16, 20), TEXT, HPos::Left, FONT_SIZE))?;
        for number in 0..=LINES {
            let nanoseconds = axis.step * f64::from(number);
            let x = axis.x(nanoseconds);
            area.draw(&line(vec![(x, HEAD - 8), (x, bottom)], GRID, 1))?;
            area.draw(&text(&shown_time(nanoseconds), (x, HEAD - 20), FAINT, HPos::Center, SMALL))?;
        }
        for (row, (label, time)) in ways.iter().enumerate() {
            let y = HEAD + ROW * row as i32 + ROW / 2;
            let is_ours = *label == WAYS[0].2;
            area.draw(&text(label, (AXIS.0 - 14, y), TEXT, HPos::Right, FONT_SIZE))?;
            let bar = [(AXIS.0, y - 10), (axis.x(*time), y + 10)];
            area.draw(&Rectangle::new(bar, filled(if is_ours { REACHED } else { REPORTED })))?;
            area.draw(&text(&shown_time(*time), (axis.x(*time) + 10, y), TEXT, HPos::Left, FONT_SIZE))?;
        }
        let scale = "Calls inside the server, without the time of the statement. Medians of all runs.";
        area.draw(&text(scale, (16, bottom + 20), FAINT, HPos::Left, SMALL))?;
        area.draw(&text(foot, (16, bottom + 42), FAINT, HPos::Left, SMALL))?;
        area.present()?;
    }
    Ok(Some(styled(&svg, "Time per id")))
}

/// Returns the ways that were measured, each with the nanoseconds of its runs.
pub fn times(figures: &[(&str, Figure)]) -> Vec<(&'static str, Vec<f64>)> {
    let nanoseconds = |(group, what, label): &(&str, &str, &'static str)| {
        let of_group = figures.iter().filter(|(name, _)| name == group).map(|(_, figure)| figure);
        let mut series = of_group.flat_map(|figure| [Some(&figure.subject), figure.yardstick.as_ref()]).flatten();
        let Series { unit, values, .. } = series.find(|series| series.what == *what)?;
        let factor = if *unit == "us" { 1000.0 } else { 1.0 };
        Some((*label, values.iter().map(|value| value * factor).collect()))
    };
    WAYS.iter().filter_map(nanoseconds).collect()
}

/// Formats nanoseconds: 32 ns, 1,004 ns, 19,200 ns.
pub fn shown_time(nanoseconds: f64) -> String {
    // No more than three digits, because the next run would have others.
    let unit = if nanoseconds >= 10_000.0 { 100.0 } else { 1.0 };
    let rounded = (nanoseconds / unit).round() * unit;
    if rounded < 100.0 { format!("{rounded:.0} ns") } else { shown(rounded, "ns") }
}

/// An axis that begins at zero, in nanoseconds.
struct Axis {
    /// From one line to the next.
    step: f64,
}

impl Axis {
    /// Returns the shortest axis with a round distance of its lines.
    fn up_to(nanoseconds: f64) -> Self {
        let power = 10f64.powf((nanoseconds.max(1.0) / f64::from(LINES)).log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|round| round * power);
        let fits = |step: &f64| step * f64::from(LINES) >= nanoseconds;
        Self { step: steps.into_iter().find(fits).expect("ten times the power is more") }
    }

    /// Returns the position of a time.
    fn x(&self, nanoseconds: f64) -> i32 {
        let share = nanoseconds / (self.step * f64::from(LINES));
        AXIS.0 + (share.clamp(0.0, 1.0) * f64::from(AXIS.1 - AXIS.0)).round() as i32
    }
}

//! The time of one id as a picture: a bar for each way to get an id, on a logarithmic axis.

use plotters::element::Rectangle;
use plotters::prelude::{IntoDrawingArea, SVGBackend};
use plotters::style::text_anchor::HPos;

use crate::Failure;
use crate::chart::{FAINT, GRID, PAGE, REACHED, REPORTED, TEXT, filled, line, styled, text};
use crate::figure::Figure;
use crate::report::shown;
use crate::series::{Series, median};

/// The ways, from the one that is shown first: the group and the name of what is measured, and the
/// words of the chart.
const WAYS: [(&str, &str, &str); 7] = [
    ("calls", "snowflake_next()", "snowflake_next()"),
    ("calls", "nextval(), cache 100", "nextval(), CACHE 100"),
    ("calls", "nextval(), cache 1", "nextval()"),
    ("calls", "uuidv7()", "uuidv7()"),
    ("calls", "gen_random_uuid()", "gen_random_uuid(), UUIDv4"),
    ("calls", "time, shard and nextval() in PL/pgSQL", "a function in PL/pgSQL"),
    ("redis", "Redis INCR", "a round trip to Redis"),
];

/// Positions, in pixels of a picture that a page may scale.
const WIDTH: i32 = 840;
const HEAD: i32 = 66;
const ROW: i32 = 34;
const FOOT: i32 = 62;
const AXIS: (i32, i32) = (250, 730);
const FONT_SIZE: i32 = 19;
const SMALL: i32 = 16;

/// The axis, by powers of ten, in nanoseconds.
const POWERS: (i32, i32) = (1, 5);

/// Draws the ways that were measured. `None` if none was.
///
/// # Errors
///
/// Never, because writing to a string does not fail.
pub fn svg(foot: &str, figures: &[(&str, Figure)]) -> Result<Option<String>, Failure> {
    let ways: Vec<_> = times(figures).into_iter().map(|(label, values)| (label, median(&values))).collect();
    if ways.is_empty() {
        return Ok(None);
    }
    let height = HEAD + ROW * ways.len() as i32 + FOOT;
    let bottom = height - FOOT;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
        area.draw(&Rectangle::new([(0, 0), (WIDTH, height)], filled(PAGE)))?;
        area.draw(&text("Time per id, shorter is better", (16, 20), TEXT, HPos::Left, FONT_SIZE))?;
        for power in POWERS.0..=POWERS.1 {
            let nanoseconds = 10f64.powi(power);
            let x = x(nanoseconds);
            area.draw(&line(vec![(x, HEAD - 8), (x, bottom)], GRID, 1))?;
            area.draw(&text(&shown_time(nanoseconds), (x, HEAD - 20), FAINT, HPos::Center, SMALL))?;
        }
        for (row, (label, time)) in ways.iter().enumerate() {
            let y = HEAD + ROW * row as i32 + ROW / 2;
            let is_ours = row == 0;
            area.draw(&text(label, (AXIS.0 - 14, y), TEXT, HPos::Right, FONT_SIZE))?;
            let bar = [(AXIS.0, y - 10), (x(*time), y + 10)];
            area.draw(&Rectangle::new(bar, filled(if is_ours { REACHED } else { REPORTED })))?;
            area.draw(&text(&shown_time(*time), (x(*time) + 10, y), TEXT, HPos::Left, FONT_SIZE))?;
        }
        let scale = "Logarithmic scale: each line is ten times the one before. Medians of all runs.";
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

/// Returns the position of a time on the axis. A time beyond the axis is at its end.
fn x(nanoseconds: f64) -> i32 {
    let share = (nanoseconds.max(1.0).log10() - f64::from(POWERS.0)) / f64::from(POWERS.1 - POWERS.0);
    AXIS.0 + (share.clamp(0.0, 1.0) * f64::from(AXIS.1 - AXIS.0)).round() as i32
}

//! The table as a picture: each ratio as a point on one axis, with its single runs and its bar.

use plotters::element::{Circle, Rectangle};
use plotters::prelude::{IntoDrawingArea, SVGBackend};
use plotters::style::text_anchor::HPos;

use crate::Failure;
use crate::chart::{ALLOWED, FAINT, GRID, Ink, MISSED, PAGE, REACHED, REPORTED, TEXT, filled, line, styled, text};
use crate::figure::{Bar, Figure, Verdict};
use crate::report::{bar, shown};

/// Positions, in pixels of a picture that a page may scale.
const WIDTH: i32 = 1000;
const HEAD: i32 = 56;
const ROW: i32 = 24;
const FOOT: i32 = 48;
const AXIS: (i32, i32) = (490, 780);
const NUMBERS: i32 = 800;
const FONT_SIZE: i32 = 13;

/// Draws the figures.
///
/// # Errors
///
/// Never, because writing to a string does not fail.
pub fn svg(foot: &str, figures: &[(&str, Figure)]) -> Result<String, Failure> {
    let height = HEAD + ROW * figures.len() as i32 + FOOT;
    let mut svg = String::new();
    let scale = Scale::of(figures);
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
        let bottom = height - FOOT;
        area.draw(&Rectangle::new([(0, 0), (WIDTH, height)], filled(PAGE)))?;
        area.draw(&text("the ratio of the medians", (AXIS.0, 14), FAINT, HPos::Left, FONT_SIZE))?;
        area.draw(&text("measured", (NUMBERS, 14), FAINT, HPos::Left, FONT_SIZE))?;
        area.draw(&text("bar", (NUMBERS + 90, 14), FAINT, HPos::Left, FONT_SIZE))?;
        for power in scale.powers() {
            let (x, label) = (scale.x(10f64.powi(power)), format!("{}", 10f64.powi(power)));
            area.draw(&line(vec![(x, HEAD - 12), (x, bottom)], GRID, 1))?;
            area.draw(&text(&label, (x, HEAD - 22), FAINT, HPos::Center, FONT_SIZE))?;
        }
        for (row, (_, figure)) in figures.iter().enumerate() {
            let y = HEAD + ROW * row as i32 + ROW / 2;
            area.draw(&text(&figure.name(), (AXIS.0 - 14, y), TEXT, HPos::Right, FONT_SIZE))?;
            let ink: Ink = match figure.verdict() {
                Verdict::Ok | Verdict::WithinSpread => REACHED,
                Verdict::Missed => MISSED,
                Verdict::Reported => REPORTED,
            };
            area.draw(&text(&shown(figure.value(), figure.unit()), (NUMBERS, y), ink, HPos::Left, FONT_SIZE))?;
            area.draw(&text(
                &bar(figure).replace(" or in spread", ""),
                (NUMBERS + 90, y),
                FAINT,
                HPos::Left,
                FONT_SIZE,
            ))?;
            if figure.is_ratio() {
                if let Some((from, to)) = scale.allowed(figure.bar) {
                    area.draw(&Rectangle::new([(from, y - 8), (to, y + 8)], filled(ALLOWED)))?;
                }
                let (least, greatest) = figure.spread();
                area.draw(&line(vec![(scale.x(least), y), (scale.x(greatest), y)], ink, 2))?;
                area.draw(&Circle::new((scale.x(figure.value()), y), 5, filled(ink)))?;
            }
        }
        let legend = "Point: medians of all runs. Line: single runs. Shaded: what the bar allows; where there is none, none is set.";
        area.draw(&text(legend, (14, bottom + 18), FAINT, HPos::Left, FONT_SIZE))?;
        area.draw(&text(foot, (14, bottom + 36), FAINT, HPos::Left, FONT_SIZE))?;
        area.present()?;
    }
    Ok(styled(&svg, "Figures of snowflake_id"))
}

/// The axis, by powers of ten.
struct Scale {
    low: i32,
    high: i32,
}

impl Scale {
    /// Includes every ratio and its single runs.
    fn of(figures: &[(&str, Figure)]) -> Self {
        let ratios = figures.iter().map(|(_, figure)| figure).filter(|figure| figure.is_ratio());
        let ends: Vec<_> =
            ratios.flat_map(|figure| [figure.spread().0, figure.spread().1]).filter(|end| *end > 0.0).collect();
        let low = ends.iter().copied().fold(0.1, f64::min).log10().floor() as i32;
        let high = ends.iter().copied().fold(1.0, f64::max).log10().ceil() as i32;
        Self { low: low.max(-4), high: high.clamp(1, 4) }
    }

    fn powers(&self) -> impl Iterator<Item = i32> + use<> {
        self.low..=self.high
    }

    /// Returns the position of a ratio on the axis. A ratio beyond the axis is at its end.
    fn x(&self, ratio: f64) -> i32 {
        let share = (ratio.max(f64::MIN_POSITIVE).log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        AXIS.0 + (share.clamp(0.0, 1.0) * f64::from(AXIS.1 - AXIS.0)).round() as i32
    }

    /// The range that a bar allows.
    fn allowed(&self, bar: Bar) -> Option<(i32, i32)> {
        match bar {
            Bar::AtMost(bar) | Bar::AtMostOrSpread(bar) => Some((AXIS.0, self.x(bar))),
            Bar::AtLeast(bar) => Some((self.x(bar), AXIS.1)),
            Bar::Exactly(bar) => Some((self.x(bar) - 2, self.x(bar) + 2)),
            Bar::Factor(bar) => Some((self.x(1.0 / bar), self.x(bar))),
            Bar::None => None,
        }
    }
}

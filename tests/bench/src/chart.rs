//! The table as a picture: each ratio as a point on one axis, with its single runs and its bar.
//!
//! The colours suit a page with a light background. A style sheet within the picture replaces them
//! if the reader prefers a dark one. The background is transparent, and text stays text.

use std::fmt::Write;

use plotters::element::{Circle, PathElement, Rectangle, Text};
use plotters::prelude::{IntoDrawingArea, RGBColor, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, IntoTextStyle, ShapeStyle};

use crate::Failure;
use crate::figure::{Bar, Figure, Verdict};
use crate::report::{bar, shown};

/// One colour, on a light page and on a dark one.
#[derive(Clone, Copy)]
struct Ink(RGBColor, RGBColor);

const TEXT: Ink = Ink(RGBColor(0x1f, 0x23, 0x28), RGBColor(0xf0, 0xf6, 0xfc));
const FAINT: Ink = Ink(RGBColor(0x59, 0x63, 0x6e), RGBColor(0x91, 0x98, 0xa1));
const GRID: Ink = Ink(RGBColor(0xd1, 0xd9, 0xe0), RGBColor(0x3d, 0x44, 0x4d));
const REACHED: Ink = Ink(RGBColor(0x1a, 0x7f, 0x37), RGBColor(0x3f, 0xb9, 0x50));
const ALLOWED: Ink = Ink(RGBColor(0xd8, 0xf0, 0xde), RGBColor(0x12, 0x33, 0x1f));
const MISSED: Ink = Ink(RGBColor(0xcf, 0x22, 0x2e), RGBColor(0xf8, 0x51, 0x49));
const REPORTED: Ink = Ink(RGBColor(0x09, 0x69, 0xda), RGBColor(0x44, 0x93, 0xf8));
const INKS: [Ink; 7] = [TEXT, FAINT, GRID, REACHED, ALLOWED, MISSED, REPORTED];

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
pub fn svg(machine: &str, figures: &[(&str, Figure)]) -> Result<String, Failure> {
    let height = HEAD + ROW * figures.len() as i32 + FOOT;
    let mut svg = String::new();
    let scale = Scale::of(figures);
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
        let bottom = height - FOOT;
        area.draw(&text("the ratio of the medians", (AXIS.0, 14), FAINT, HPos::Left))?;
        area.draw(&text("measured", (NUMBERS, 14), FAINT, HPos::Left))?;
        area.draw(&text("bar", (NUMBERS + 90, 14), FAINT, HPos::Left))?;
        for power in scale.powers() {
            let (x, label) = (scale.x(10f64.powi(power)), format!("{}", 10f64.powi(power)));
            area.draw(&line(vec![(x, HEAD - 12), (x, bottom)], GRID, 1))?;
            area.draw(&text(&label, (x, HEAD - 22), FAINT, HPos::Center))?;
        }
        for (row, (_, figure)) in figures.iter().enumerate() {
            let y = HEAD + ROW * row as i32 + ROW / 2;
            area.draw(&text(&figure.name(), (AXIS.0 - 14, y), TEXT, HPos::Right))?;
            let ink = match figure.verdict() {
                Verdict::Ok | Verdict::WithinSpread => REACHED,
                Verdict::Missed => MISSED,
                Verdict::Reported => REPORTED,
            };
            area.draw(&text(&shown(figure.value(), figure.unit()), (NUMBERS, y), ink, HPos::Left))?;
            area.draw(&text(&bar(figure).replace(" or in spread", ""), (NUMBERS + 90, y), FAINT, HPos::Left))?;
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
        area.draw(&text(legend, (14, bottom + 18), FAINT, HPos::Left))?;
        area.draw(&text(machine, (14, bottom + 36), FAINT, HPos::Left))?;
        area.present()?;
    }
    Ok(styled(&svg))
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

fn text(text: &str, at: (i32, i32), ink: Ink, horizontally: HPos) -> Text<'static, (i32, i32), String> {
    let mut style = ("sans-serif", FONT_SIZE, FontStyle::Normal).into_text_style(&(0, 0));
    style.color = ink.0.to_backend_color();
    style.pos = Pos::new(horizontally, VPos::Center);
    Text::new(text.to_owned(), at, style)
}

fn line(points: Vec<(i32, i32)>, ink: Ink, width: u32) -> PathElement<(i32, i32)> {
    PathElement::new(points, ink.0.stroke_width(width))
}

fn filled(ink: Ink) -> ShapeStyle {
    ink.0.filled()
}

/// Puts the style sheet for a dark page behind the opening tag: a rule wins over an attribute.
fn styled(svg: &str) -> String {
    let hex = |RGBColor(red, green, blue): RGBColor| format!("#{red:02X}{green:02X}{blue:02X}");
    let mut style =
        String::from("\n<title>Figures of snowflake_id</title>\n<style>@media (prefers-color-scheme: dark) {\n");
    for Ink(light, dark) in INKS {
        for attribute in ["fill", "stroke"] {
            writeln!(style, "[{attribute}=\"{}\"] {{ {attribute}: {} }}", hex(light), hex(dark))
                .expect("a string can be written to");
        }
    }
    style.push_str("}</style>");
    let end_of_tag = svg.find("<svg").and_then(|start| Some(start + svg[start..].find('>')? + 1)).unwrap_or(0);
    format!("{}{style}{}", &svg[..end_of_tag], &svg[end_of_tag..])
}

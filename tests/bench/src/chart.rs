//! What the charts share: colours, text and lines.
//!
//! The colours suit a light page. A style sheet within the picture replaces them if the reader
//! prefers a dark one. The picture has a background of its own, so that it can be read on a page
//! of either kind. Text stays text.

use std::fmt::Write;

use plotters::element::{PathElement, Text};
use plotters::prelude::RGBColor;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, IntoTextStyle, ShapeStyle};

/// One colour, on a light page and on a dark one.
#[derive(Clone, Copy)]
pub struct Ink(RGBColor, RGBColor);

pub const PAGE: Ink = Ink(RGBColor(0xff, 0xff, 0xff), RGBColor(0x0d, 0x11, 0x17));
pub const TEXT: Ink = Ink(RGBColor(0x1f, 0x23, 0x28), RGBColor(0xf0, 0xf6, 0xfc));
pub const FAINT: Ink = Ink(RGBColor(0x59, 0x63, 0x6e), RGBColor(0x91, 0x98, 0xa1));
pub const GRID: Ink = Ink(RGBColor(0xd1, 0xd9, 0xe0), RGBColor(0x3d, 0x44, 0x4d));
pub const REACHED: Ink = Ink(RGBColor(0x1a, 0x7f, 0x37), RGBColor(0x3f, 0xb9, 0x50));
pub const ALLOWED: Ink = Ink(RGBColor(0xd8, 0xf0, 0xde), RGBColor(0x12, 0x33, 0x1f));
pub const MISSED: Ink = Ink(RGBColor(0xcf, 0x22, 0x2e), RGBColor(0xf8, 0x51, 0x49));
pub const REPORTED: Ink = Ink(RGBColor(0x09, 0x69, 0xda), RGBColor(0x44, 0x93, 0xf8));
const INKS: [Ink; 8] = [PAGE, TEXT, FAINT, GRID, REACHED, ALLOWED, MISSED, REPORTED];

/// Returns a line of text whose middle is at `at`, vertically.
pub fn text(text: &str, at: (i32, i32), ink: Ink, horizontally: HPos, size: i32) -> Text<'static, (i32, i32), String> {
    let mut style = ("sans-serif", size, FontStyle::Normal).into_text_style(&(0, 0));
    style.color = ink.0.to_backend_color();
    style.pos = Pos::new(horizontally, VPos::Center);
    Text::new(text.to_owned(), at, style)
}

/// Returns a line through points.
pub fn line(points: Vec<(i32, i32)>, ink: Ink, width: u32) -> PathElement<(i32, i32)> {
    PathElement::new(points, ink.0.stroke_width(width))
}

/// Returns the style of an area.
pub fn filled(ink: Ink) -> ShapeStyle {
    ink.0.filled()
}

/// Puts a title, and the style sheet for a dark page, behind the opening tag: a rule wins over an
/// attribute.
pub fn styled(svg: &str, title: &str) -> String {
    let hex = |RGBColor(red, green, blue): RGBColor| format!("#{red:02X}{green:02X}{blue:02X}");
    let mut style = format!("\n<title>{title}</title>\n<style>@media (prefers-color-scheme: dark) {{\n");
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

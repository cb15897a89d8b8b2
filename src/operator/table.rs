//! A table for a terminal of fixed width, and texts that are safe to print there.

use std::iter;

/// The widest line.
pub const WIDTH: usize = 120;

/// What separates two columns.
const GAP: usize = 2;

/// How a column stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Text, as wide as its longest value.
    Text(&'static str),
    /// A number or a length of time, to the right.
    Number(&'static str),
    /// Text that may be cut, but not below so many characters.
    Cut(&'static str, usize),
}

impl Column {
    fn name(self) -> &'static str {
        match self {
            Self::Text(name) | Self::Number(name) | Self::Cut(name, _) => name,
        }
    }
}

/// Returns the lines of a table, its head first. Columns without a value in any row are left out.
pub fn lines(columns: &[Column], rows: &[Vec<String>]) -> Vec<String> {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|value| printable(value)).collect()).collect();
    let used: Vec<usize> = (0..columns.len()).filter(|&at| rows.iter().any(|row| !row[at].is_empty())).collect();
    let longest = |at: usize| rows.iter().map(|row| length(&row[at])).max().unwrap_or(0);
    let mut widths: Vec<usize> = used.iter().map(|&at| longest(at).max(length(columns[at].name()))).collect();
    // What is too much is taken from the widest column that may be cut, one character at a time.
    let whole = |widths: &[usize]| widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
    while whole(&widths) > WIDTH {
        let can_be_cut = |at: &usize| matches!(columns[used[*at]], Column::Cut(_, least) if widths[*at] > least);
        let Some(widest) = (0..used.len()).filter(can_be_cut).max_by_key(|&at| widths[at]) else { break };
        widths[widest] -= 1;
    }
    let head: Vec<String> = columns.iter().map(|column| column.name().to_owned()).collect();
    let line = |row: &Vec<String>| {
        let cells = used.iter().zip(&widths).map(|(&at, &width)| match columns[at] {
            Column::Number(_) => format!("{:>width$}", row[at]),
            _ => format!("{:<width$}", cut(&row[at], width)),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    iter::once(&head).chain(&rows).map(line).collect()
}

/// Returns a text without what a terminal would obey. Servers have written it, and a thief of their
/// password may have.
pub fn printable(text: &str) -> String {
    // Also those that change the direction of what follows, or take no room.
    let is_hidden = |char: char| {
        char.is_control()
            || matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().map(|char| if is_hidden(char) { '?' } else { char }).collect()
}

/// The same for a text of several lines.
pub fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// Cuts a text to so many characters. Two dots show that something is missing.
pub fn cut(text: &str, width: usize) -> String {
    if length(text) <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(2)).chain("..".chars()).take(width).collect()
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[&str]) -> Vec<String> {
        values.iter().map(|value| (*value).to_owned()).collect()
    }

    #[test]
    fn columns_are_as_wide_as_their_values_and_empty_ones_are_left_out() {
        let columns = [Column::Text("DC"), Column::Number("NUMBER"), Column::Text("STATE"), Column::Cut("SERVER", 10)];
        let rows = [row(&["", "4", "held", "a.example:5432"]), row(&["", "1023", "free", ""])];
        assert_eq!(lines(&columns, &rows), ["NUMBER  STATE  SERVER", "     4  held   a.example:5432", "  1023  free",]);
        assert_eq!(lines(&columns, &[]), [""]);
    }

    #[test]
    fn the_widest_texts_are_cut_until_a_line_fits() {
        let columns = [Column::Cut("SERVER", 10), Column::Number("NUMBER"), Column::Cut("DESCRIPTION", 10)];
        let rows = [row(&[&"h".repeat(100), "7", &"d".repeat(90)]), row(&["short", "8", "x"])];
        let drawn = lines(&columns, &rows);
        assert!(drawn.iter().all(|line| line.chars().count() <= WIDTH), "{drawn:?}");
        assert_eq!(drawn[1], format!("{}..       7  {}..", "h".repeat(53), "d".repeat(53)));
    }

    #[test]
    fn what_may_not_be_cut_is_kept() {
        let columns = [Column::Text("A"), Column::Cut("B", 50)];
        let drawn = lines(&columns, &[row(&[&"a".repeat(110), &"b".repeat(60)])]);
        assert_eq!(drawn[1], format!("{}  {}..", "a".repeat(110), "b".repeat(48)));
    }

    #[test]
    fn a_terminal_does_not_obey_what_a_server_has_written() {
        assert_eq!(printable("a\u{1b}[2Jb\nc\u{202e}d\u{85}"), "a?[2Jb?c?d?");
        let drawn = lines(&[Column::Text("HOST")], &[row(&["\u{1b}]0;x\u{7}"])]);
        assert_eq!(drawn[1], "?]0;x?");
    }

    #[test]
    fn a_text_is_cut_at_a_character() {
        assert_eq!(
            (cut("Gr\u{f6}\u{df}e", 5), cut("Gr\u{f6}\u{df}er", 5), cut("abc", 1)),
            ("Gr\u{f6}\u{df}e".into(), "Gr\u{f6}..".into(), ".".into())
        );
    }
}

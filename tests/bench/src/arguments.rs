//! The command line: `bench [--runs N] [--csv FILE] [--charts DIRECTORY] [--redis DIRECTORY]
//! [--rows N] [GROUP...]`.

use std::path::PathBuf;

use crate::{GROUPS, Group};

/// The parsed command line.
pub struct Arguments {
    /// The number of runs of each group, instead of its default.
    pub runs: Option<usize>,
    /// The file for the values of all runs.
    pub csv: Option<PathBuf>,
    /// The directory for the charts, and for the tables in Markdown.
    pub charts: Option<PathBuf>,
    /// A directory with `redis-server` and `redis-benchmark`, in which a socket can be created.
    pub redis: Option<PathBuf>,
    /// The number of rows of each table of the group `forms`, or of the first one of `widen`.
    pub rows: Option<u64>,
    /// The groups that were named; none means all but those that are measured on request only.
    names: Vec<String>,
}

impl Arguments {
    /// Reads the command line.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it.
    pub fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self { runs: None, csv: None, charts: None, redis: None, rows: None, names: Vec::new() };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("\"{word}\" needs a value"));
            match word.as_str() {
                "--runs" => arguments.runs = Some(number(&value()?, "runs")?),
                "--csv" => arguments.csv = Some(value()?.into()),
                "--charts" => arguments.charts = Some(value()?.into()),
                "--rows" => arguments.rows = Some(number(&value()?, "rows")? as u64),
                "--redis" => arguments.redis = Some(value()?.into()),
                name if GROUPS.iter().any(|group| group.name == name) => arguments.names.push(word),
                _ => {
                    let names = GROUPS.map(|group| group.name).join(", ");
                    return Err(format!("there is no figure \"{word}\"; there are: {names}"));
                }
            }
        }
        Ok(arguments)
    }

    /// Returns the groups to be measured, in the order of the table.
    pub fn groups(&self) -> impl Iterator<Item = &'static Group> {
        GROUPS.iter().filter(|group| {
            self.names.is_empty() && !group.is_on_request || self.names.iter().any(|name| name == group.name)
        })
    }
}

fn number(text: &str, of: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("\"{text}\" is not a number of {of}: 1 or more"))
}

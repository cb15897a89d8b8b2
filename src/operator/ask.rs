//! Asking the person at the terminal before a dangerous change.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::report::{Report, misused, refused};

/// Whether a person can be asked.
pub fn has_person() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Refuses a dangerous change that nobody can be asked about.
pub fn without_person(command: &str) -> Report {
    misused(format!("\"{command}\" must be confirmed, and there is no terminal to ask on"))
        .hint("Look at what --dry-run shows. Then add --yes.")
}

/// Asks, and takes nothing but "yes" for a yes.
///
/// # Errors
/// The answer is another one.
pub fn confirm(shown: &[String]) -> Result<(), Report> {
    let mut stderr = io::stderr().lock();
    let mut answer = String::new();
    let mut ask = || {
        for line in shown {
            writeln!(stderr, "{line}")?;
        }
        write!(stderr, "Continue? Type \"yes\": ")?;
        stderr.flush()?;
        io::stdin().lock().read_line(&mut answer)
    };
    match ask() {
        Ok(_) if is_yes(&answer) => Ok(()),
        _ => Err(refused("nothing was changed, because the answer was not \"yes\"")),
    }
}

fn is_yes(answer: &str) -> bool {
    answer.trim().eq_ignore_ascii_case("yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_is_a_yes() {
        assert!(is_yes("yes\n") && is_yes(" YES \r\n"));
        for answer in ["", "\n", "y\n", "ye\n", "yes please\n", "no\n"] {
            assert!(!is_yes(answer), "{answer:?}");
        }
    }
}

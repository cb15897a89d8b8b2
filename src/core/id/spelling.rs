//! A user's words in errors: how much of one an error repeats, and which known word it probably
//! means.

/// The most characters of a user's text that an error repeats, so that no error grows with its
/// input.
pub const MAX_QUOTED: usize = 40;

/// Cuts `word` to [`MAX_QUOTED`] characters for use in an error.
pub(crate) fn quoted(word: &str) -> String {
    match word.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{}...", &word[..end]),
        None => word.to_owned(),
    }
}

/// Returns the candidate that is nearest to `word`, counting wrong, missing, extra and swapped
/// letters, and ignoring case. Returns `None` if half of the longer word or more would have to
/// change.
///
/// ```
/// use snowflake_core::id::spelling::nearest;
///
/// assert_eq!(nearest("layuot", ["worker_id", "layout"]), Some("layout"));
/// assert_eq!(nearest("node", ["worker_id", "layout"]), None);
/// ```
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let is_near = |(changes, candidate): &(usize, &str)| changes * 2 < candidate.len().max(word.len());
    let with_distance = candidates.into_iter().map(|candidate| (distance(word, candidate), candidate));
    with_distance.filter(is_near).min_by_key(|(changes, _)| *changes).map(|(_, candidate)| candidate)
}

/// Returns how many letters have to be changed, inserted, removed or swapped with the next one to
/// turn one word into the other.
pub fn distance(a: &str, b: &str) -> usize {
    let letters = |word: &str| word.bytes().map(|letter| letter.to_ascii_lowercase()).collect::<Vec<_>>();
    let (a, b) = (letters(a), letters(b));
    // The distances between beginnings of a (rows) and of b (columns), of which the last two rows
    // are kept.
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let changed = last[j] + usize::from(a[i] != b[j]);
            let mut least = changed.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before_last[j - 1] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn each_kind_of_slip_counts_once() {
        for (a, b, changes) in [
            ("layout", "layout", 0),
            ("LAYOUT", "layout", 0),
            ("layuot", "layout", 1),
            ("layot", "layout", 1),
            ("layoutt", "layout", 1),
            ("leyout", "layout", 1),
            ("", "layout", 6),
            ("worker", "worker_id", 3),
            ("ab", "ba", 1),
            ("abc", "ca", 3),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (changes, changes), "{a} {b}");
        }
    }

    #[test]
    fn the_nearest_word_is_found_and_a_far_one_is_not() {
        let names = ["layout", "worker_id", "datacenter_id", "max_borrow", "max_clock_jump"];
        for (word, meant) in [
            ("layuot", Some("layout")),
            ("worker", Some("worker_id")),
            ("wroker_id", Some("worker_id")),
            ("datacentre_id", Some("datacenter_id")),
            ("Max_Burrow", Some("max_borrow")),
            ("max_jump", Some("max_clock_jump")),
            ("foo", None),
            ("node", None),
            // Half of the letters.
            ("layxyz", None),
            ("layoyz", Some("layout")),
            ("", None),
        ] {
            assert_eq!(nearest(word, names), meant, "{word}");
        }
    }
}

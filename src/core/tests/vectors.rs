//! Checks published ids and texts: ids decode to what their sources say and compose back, and texts
//! stand for the numbers that their sources say.
//!
//! `vectors.tsv`, `encodings.tsv` and `public-ids.tsv` hold the tables, with their sources.
//! Properties of all ids are in `properties.rs`.

use snowflake_core::clock::{Utc, parse_instant};
use snowflake_core::id::encoding::Encoding;
use snowflake_core::id::layout::Layout;
use snowflake_core::id::public::{Keys, Prefix};

/// Parses a number as a source gives it; `-` stands for none.
fn number(cell: &str) -> Option<u32> {
    (cell != "-").then(|| cell.parse().expect(cell))
}

#[test]
fn published_ids_decode_and_compose() {
    let mut rows = 0;
    for row in include_str!("vectors.tsv").lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = row.split('\t').collect();
        let [id, layout, created_at, datacenter, worker, sequence, source] = cells[..] else { panic!("{row}") };
        let id: i64 = id.parse().unwrap();
        let layout = Layout::parse(layout).unwrap();
        let parts = layout.parts(id).unwrap();

        // A source with whole seconds does not tell the milliseconds.
        let digits = if source.contains("to the second") { "2012-08-28T21:16:23".len() } else { created_at.len() };
        let read = Utc(parts.created_at_ms).to_string();
        let read = if created_at.contains('.') { read } else { read.replace(".000Z", "Z") };
        assert_eq!(read[..digits], created_at[..digits], "{row}");
        assert_eq!(parse_instant(created_at).map(|ms| ms / 1000), Ok(parts.created_at_ms / 1000), "{row}");

        for (read, said) in [
            (parts.datacenter, number(datacenter)),
            (parts.worker, number(worker)),
            (Some(parts.sequence), number(sequence)),
        ] {
            assert!(said.is_none() || read == said, "{row}: {read:?}");
        }
        let (datacenter, worker) = (parts.datacenter.map(i64::from), parts.worker.map(i64::from));
        let composed = layout.compose(Some(parts.created_at_ms), datacenter, worker, parts.sequence.into());
        assert_eq!(composed, Ok(id), "{row}");
        rows += 1;
    }
    assert!(rows >= 10, "{rows} rows");
}

#[test]
fn published_texts_are_read_and_written() {
    let mut rows = [0; Encoding::ALL.len()];
    for row in include_str!("encodings.tsv").lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = row.split('\t').collect();
        let [number, encoding, text, _source] = cells[..] else { panic!("{row}") };
        let (id, encoding) = (number.parse().unwrap(), Encoding::parse(encoding).unwrap());
        let padded = format!("{text:0>width$}", width = encoding.length());
        assert_eq!(encoding.decode(padded.chars()), Ok(id), "{row}");
        let written = if encoding == Encoding::Base32 { padded.to_uppercase() } else { padded };
        assert_eq!(encoding.encode(id), Ok(written), "{row}");
        rows[encoding as usize] += 1;
    }
    assert!(rows.iter().all(|rows| *rows >= 5), "{rows:?}");
}

/// Reads bytes as hexadecimal digits.
fn bytes(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn ids_are_concealed_as_by_two_other_programs() {
    let mut rows = 0;
    for row in include_str!("public-ids.tsv").lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = row.split('\t').collect();
        let [key, id, prefix, token] = cells[..] else { panic!("{row}") };
        let (key, id) = (bytes(key), id.parse().unwrap());
        let keys = Keys::new(Prefix::parse(prefix).unwrap(), [(i64::MIN, key.as_slice())]).unwrap();
        assert_eq!(keys.conceal(id).unwrap().as_str(), token, "{row}");
        assert_eq!(keys.reveal(token.as_bytes()), Some(id), "{row}");
        rows += 1;
    }
    assert!(rows >= 10, "{rows} rows");
}

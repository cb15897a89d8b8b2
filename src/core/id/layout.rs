//! The layout: which bits of an id are time, datacenter, worker and sequence, and what one tick of
//! time is.
//!
//! ```text
//!  63 62                                        22 21       12 11           0
//! +--+--------------------------------------------+-----------+--------------+
//! |0 | time: ticks of `unit` since `epoch`        | worker    | sequence     |   "snowflake"
//! +--+--------------------------------------------+-----------+--------------+
//! ```
//!
//! One line of text describes it: fields from the high bits to the low, then unit and epoch, as in
//! `time:41 worker:10 sequence:12 unit:1ms epoch:2025-01-01T00:00:00Z`. A built-in name stands for
//! such a line ([`BUILT_IN`]). The meaning of a name never changes because generated columns and
//! partition bounds depend on it.

use std::fmt;

use crate::clock::{InstantError, Utc, parse_instant};
use crate::id::fnv::fnv1a;
use crate::id::spelling::quoted;

/// The longest layout text, in bytes. The longest meaningful one has about 100.
pub const MAX_TEXT: usize = 256;

/// Ids are positive bigints: 63 bits.
const MAX_BITS: u32 = 63;

/// The widest datacenter, worker or sequence, because SQL shows them as `integer`.
const MAX_NUMBER_BITS: u32 = 31;

/// The first instant after timestamptz's range (END_TIMESTAMP in PostgreSQL's
/// datatype/timestamp.h), 294277-01-01.
const TIMESTAMPTZ_END_MS: i64 = 9_224_318_016_000_000;

/// The built-in layouts with name and text; the first is the default.
///
/// `baidu`'s time ended in November 2024: it decodes ids, but cannot draw new ones. Discord,
/// Instagram, Mastodon and TSID write one more time bit, the sign bit, which stays 0 for decades.
/// Discord's process is our datacenter, and TSID's node is our worker. `sonyflake2` is version 2 of
/// Sonyflake, which has another epoch.
pub const BUILT_IN: [(&str, &str); 13] = [
    ("snowflake", "time:41 worker:10 sequence:12 unit:1ms epoch:2025-01-01T00:00:00Z"),
    ("twitter", "time:41 datacenter:5 worker:5 sequence:12 unit:1ms epoch:2010-11-04T01:42:54.657Z"),
    ("js53", "time:32 worker:5 sequence:16 unit:1s epoch:2019-01-01T00:00:00Z"),
    ("baidu", "time:28 worker:22 sequence:13 unit:1s epoch:2016-05-19T16:00:00Z"),
    ("leaf", "time:41 worker:10 sequence:12 unit:1ms epoch:2010-11-04T01:42:54.657Z"),
    ("discord", "time:41 worker:5 datacenter:5 sequence:12 unit:1ms epoch:2015-01-01T00:00:00Z"),
    ("instagram", "time:40 worker:13 sequence:10 unit:1ms epoch:2011-08-24T21:07:01.721Z"),
    ("mastodon", "time:47 sequence:16 unit:1ms epoch:1970-01-01T00:00:00Z"),
    ("sonyflake", "time:39 sequence:8 worker:16 unit:10ms epoch:2014-09-01T00:00:00Z"),
    ("cosid", "time:41 worker:10 sequence:12 unit:1ms epoch:2019-12-24T16:00:00Z"),
    ("pgedge", "time:41 worker:10 sequence:12 unit:1ms epoch:2023-01-01T00:00:00Z"),
    ("tsid", "time:41 worker:10 sequence:12 unit:1ms epoch:2020-01-01T00:00:00Z"),
    ("sonyflake2", "time:39 sequence:8 worker:16 unit:10ms epoch:2025-01-01T00:00:00Z"),
];

/// A field's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// Ticks since the epoch.
    Time,
    /// The number of the datacenter.
    Datacenter,
    /// The number of the worker, which a primary and its standbys share.
    Worker,
    /// The number of the id within its tick.
    Sequence,
}

impl Field {
    const ALL: [Self; 4] = [Self::Time, Self::Datacenter, Self::Worker, Self::Sequence];

    /// The name as the grammar writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Datacenter => "datacenter",
            Self::Worker => "worker",
            Self::Sequence => "sequence",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The length of one tick. The discriminant is the length in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i64)]
pub enum Unit {
    /// One millisecond.
    Ms1 = 1,
    /// Ten milliseconds.
    Ms10 = 10,
    /// A hundred milliseconds.
    Ms100 = 100,
    /// One second.
    S1 = 1000,
}

impl Unit {
    /// All units, shortest first.
    pub const ALL: [Self; 4] = [Self::Ms1, Self::Ms10, Self::Ms100, Self::S1];

    /// The name as the grammar writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ms1 => "1ms",
            Self::Ms10 => "10ms",
            Self::Ms100 => "100ms",
            Self::S1 => "1s",
        }
    }

    /// The length in milliseconds.
    #[inline]
    pub const fn ms(self) -> i64 {
        self as i64
    }

    /// Whole units in `ms`, rounded down. A match lets the hot path divide by constants, or not at
    /// all.
    #[inline]
    const fn floor(self, ms: i64) -> i64 {
        match self {
            Self::Ms1 => ms,
            Self::Ms10 => ms.div_euclid(10),
            Self::Ms100 => ms.div_euclid(100),
            Self::S1 => ms.div_euclid(1000),
        }
    }
}

/// The place of a field: `bits` bits, the lowest of which is bit `shift`. `bits` is 0 for an absent
/// field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Bits {
    pub(crate) shift: u32,
    pub(crate) bits: u32,
}

impl Bits {
    /// The largest number that fits.
    #[inline]
    pub(crate) const fn max(self) -> u64 {
        (1 << self.bits) - 1
    }
}

/// One field of a layout, as shown to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldBits {
    /// Which field.
    pub field: Field,
    /// Its width in bits, 1 to 62.
    pub bits: u32,
    /// The number of bits below it, 0 to 62.
    pub shift: u32,
    /// The largest number that fits; the smallest is 0.
    pub max: u64,
}

/// A valid layout: the fields fit into 63 bits, and all its time into timestamptz.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    pub(crate) time: Bits,
    pub(crate) datacenter: Bits,
    pub(crate) worker: Bits,
    pub(crate) sequence: Bits,
    unit: Unit,
    epoch_ms: i64,
    /// Kept, because each look at a stored mark compares it.
    fingerprint: i64,
}

impl Layout {
    /// Reads a built-in name, or a line of the grammar.
    ///
    /// # Errors
    /// [`LayoutError`], which names the offending word. Never panics; allocates no more than a few
    /// copies of a line.
    ///
    /// ```
    /// use snowflake_core::id::layout::Layout;
    /// let line = "time:39 sequence:8 worker:16 unit:10ms epoch:2014-09-01T00:00:00Z";
    /// assert_eq!(Layout::parse("sonyflake")?, Layout::parse(line)?);
    /// # Ok::<(), snowflake_core::id::layout::LayoutError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, LayoutError> {
        if text.len() > MAX_TEXT {
            return Err(LayoutError::TooLong { bytes: text.len() });
        }
        let text = text.trim_ascii();
        if text.is_empty() {
            return Err(LayoutError::Empty);
        }
        if let Some((_, line)) = BUILT_IN.iter().find(|(name, _)| *name == text) {
            return Self::parse_line(line);
        }
        if !text.contains([':', ' ', '\t', '\n', '\r', '\x0c']) {
            return Err(LayoutError::UnknownName(quoted(text)));
        }
        Self::parse_line(text)
    }

    fn parse_line(line: &str) -> Result<Self, LayoutError> {
        let mut fields: [Option<(Field, u32)>; 4] = [None; 4];
        let mut count = 0;
        let mut unit = None;
        let mut epoch_ms = None;
        for word in line.split_ascii_whitespace() {
            let (name, value) = word.split_once(':').ok_or_else(|| LayoutError::Malformed(quoted(word)))?;
            match name {
                "unit" if unit.is_some() => return Err(LayoutError::Repeated(quoted(word))),
                "epoch" if epoch_ms.is_some() => return Err(LayoutError::Repeated(quoted(word))),
                "unit" if epoch_ms.is_some() => return Err(LayoutError::OutOfOrder(quoted(word))),
                "unit" => unit = Some(parse_unit(word, value)?),
                "epoch" => epoch_ms = Some(parse_epoch(word, value)?),
                _ => {
                    let field = Field::ALL
                        .into_iter()
                        .find(|field| field.name() == name)
                        .ok_or_else(|| LayoutError::UnknownWord(quoted(word)))?;
                    if fields.iter().flatten().any(|(earlier, _)| *earlier == field) {
                        return Err(LayoutError::Repeated(quoted(word)));
                    }
                    if unit.is_some() || epoch_ms.is_some() {
                        return Err(LayoutError::OutOfOrder(quoted(word)));
                    }
                    if count == 0 && field != Field::Time {
                        return Err(LayoutError::TimeNotFirst(quoted(word)));
                    }
                    fields[count] = Some((field, parse_width(word, field, value)?));
                    count += 1;
                }
            }
        }

        let bits: u32 = fields.iter().flatten().map(|(_, bits)| bits).sum();
        let mut layout = Self {
            time: Bits::default(),
            datacenter: Bits::default(),
            worker: Bits::default(),
            sequence: Bits::default(),
            unit: unit.unwrap_or(Unit::Ms1),
            epoch_ms: epoch_ms.unwrap_or(0),
            fingerprint: 0,
        };
        let mut shift = bits;
        for (field, bits) in fields.into_iter().flatten() {
            shift -= bits;
            *layout.field_mut(field) = Bits { shift, bits };
        }
        for required in [Field::Time, Field::Sequence] {
            if layout.field(required).bits == 0 {
                return Err(LayoutError::Missing(required.name()));
            }
        }
        if bits > MAX_BITS {
            return Err(LayoutError::TooWide { bits });
        }
        if unit.is_none() {
            return Err(LayoutError::Missing("unit"));
        }
        if epoch_ms.is_none() {
            return Err(LayoutError::Missing("epoch"));
        }
        // i128 because 2^62 ticks of a second are more milliseconds than i64 holds.
        let end_ms = i128::from(layout.epoch_ms) + (1_i128 << layout.time.bits) * i128::from(layout.unit.ms());
        if end_ms > i128::from(TIMESTAMPTZ_END_MS) {
            return Err(LayoutError::EndsTooLate { bits: layout.time.bits });
        }
        layout.fingerprint = (fnv1a(layout.to_string().as_bytes()) >> 1) as i64;
        Ok(layout)
    }

    pub(crate) fn field(&self, field: Field) -> Bits {
        match field {
            Field::Time => self.time,
            Field::Datacenter => self.datacenter,
            Field::Worker => self.worker,
            Field::Sequence => self.sequence,
        }
    }

    fn field_mut(&mut self, field: Field) -> &mut Bits {
        match field {
            Field::Time => &mut self.time,
            Field::Datacenter => &mut self.datacenter,
            Field::Worker => &mut self.worker,
            Field::Sequence => &mut self.sequence,
        }
    }

    /// The name of the built-in layout that this one equals.
    pub fn built_in_name(&self) -> Option<&'static str> {
        BUILT_IN.iter().find(|(_, line)| Self::parse_line(line).as_ref() == Ok(self)).map(|(name, _)| *name)
    }

    /// A number that stands for the layout: the [FNV-1a](fnv1a) of its text, without the sign. The
    /// text is the canonical one, so a layout has one fingerprint however it was written.
    pub fn fingerprint(&self) -> i64 {
        self.fingerprint
    }

    /// The name of the built-in layout with this fingerprint.
    pub fn built_in_with(fingerprint: i64) -> Option<&'static str> {
        let named = |line| Self::parse_line(line).is_ok_and(|layout| layout.fingerprint() == fingerprint);
        BUILT_IN.iter().find(|(_, line)| named(line)).map(|(name, _)| *name)
    }

    /// The fields that the layout has, from the high bits to the low.
    pub fn fields(&self) -> impl Iterator<Item = FieldBits> {
        let mut fields = Field::ALL.map(|field| (field, self.field(field)));
        fields.sort_by_key(|(_, bits)| std::cmp::Reverse(bits.shift));
        fields.into_iter().filter(|(_, bits)| bits.bits > 0).map(|(field, bits)| FieldBits {
            field,
            bits: bits.bits,
            shift: bits.shift,
            max: bits.max(),
        })
    }

    /// The largest number of a field, or `None` if the layout lacks it.
    pub fn max_of(&self, field: Field) -> Option<u64> {
        let bits = self.field(field);
        (bits.bits > 0).then(|| bits.max())
    }

    /// The length of a tick.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// The start of tick 0, in milliseconds since 1970.
    pub fn epoch_ms(&self) -> i64 {
        self.epoch_ms
    }

    /// The largest id.
    pub fn max_id(&self) -> i64 {
        // time comes first, so its upper end is the layout's. That is at most 63 bits, so the sum
        // fits.
        (1_i64.unbounded_shl(self.time.shift + self.time.bits)).wrapping_sub(1)
    }

    /// How many ids one worker can draw per second: ticks per second times numbers per sequence.
    pub fn ids_per_second(&self) -> u64 {
        (1000 / self.unit.ms()).unsigned_abs() * (self.sequence.max() + 1)
    }

    /// The layout's last tick.
    #[inline]
    pub fn last_tick(&self) -> u64 {
        self.time.max()
    }

    /// The tick that holds `ms`; negative before the epoch, and above [`Self::last_tick`] after the
    /// end.
    #[inline]
    pub fn tick_at(&self, ms: i64) -> i64 {
        self.unit.floor(ms.saturating_sub(self.epoch_ms))
    }

    /// The start of a tick up to one past [`Self::last_tick`], in milliseconds since 1970.
    #[inline]
    pub fn start_of_ms(&self, tick: u64) -> i64 {
        debug_assert!(tick <= self.last_tick() + 1);
        // Fits: parse() has checked that the layout's time ends within timestamptz's range.
        self.epoch_ms + tick as i64 * self.unit.ms()
    }

    /// The last time that ids can carry: the start of the last tick, in milliseconds since 1970.
    pub fn last_instant_ms(&self) -> i64 {
        self.start_of_ms(self.last_tick())
    }
}

/// Prints the line of the grammar, never a name, so `parse(print(layout)) == layout`.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for FieldBits { field, bits, .. } in self.fields() {
            write!(f, "{field}:{bits} ")?;
        }
        let epoch = Utc(self.epoch_ms).to_string().replace(".000Z", "Z");
        write!(f, "unit:{} epoch:{epoch}", self.unit.name())
    }
}

fn parse_width(word: &str, field: Field, value: &str) -> Result<u32, LayoutError> {
    let max = if field == Field::Time { MAX_BITS - 1 } else { MAX_NUMBER_BITS };
    // Digits only, because parse() alone would accept a plus sign.
    let width = value.bytes().all(|b| b.is_ascii_digit()).then(|| value.parse().ok()).flatten();
    width.filter(|bits| (1..=max).contains(bits)).ok_or_else(|| LayoutError::Width { word: quoted(word), max })
}

fn parse_unit(word: &str, value: &str) -> Result<Unit, LayoutError> {
    Unit::ALL.into_iter().find(|unit| unit.name() == value).ok_or_else(|| LayoutError::UnknownUnit(quoted(word)))
}

fn parse_epoch(word: &str, value: &str) -> Result<i64, LayoutError> {
    parse_instant(value).map_err(|error| match error {
        InstantError::NoZone => LayoutError::EpochWithoutZone(quoted(word)),
        InstantError::Malformed => LayoutError::Epoch(quoted(word)),
    })
}

/// Why a text is not a layout. Each variant names the offending word, cut to
/// [`MAX_QUOTED`](crate::id::spelling::MAX_QUOTED) characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayoutError {
    /// The text has no words.
    Empty,
    /// The text has more than [`MAX_TEXT`] bytes.
    TooLong {
        /// The text's length in bytes.
        bytes: usize,
    },
    /// A single word without a colon that is not a built-in layout's name.
    UnknownName(String),
    /// A word that is not of the form `name:value`.
    Malformed(String),
    /// The word's name is not in the grammar.
    UnknownWord(String),
    /// The word's name has occurred before.
    Repeated(String),
    /// A width that is not a number from 1 to `max`.
    Width {
        /// The offending word.
        word: String,
        /// The widest this field can be, in bits.
        max: u32,
    },
    /// Another field comes before `time`.
    TimeNotFirst(String),
    /// A field comes after `unit` or `epoch`, or `unit` after `epoch`.
    OutOfOrder(String),
    /// A required word is missing.
    Missing(&'static str),
    /// The widths add up to more than 63 bits.
    TooWide {
        /// The sum of all widths, in bits.
        bits: u32,
    },
    /// A unit other than 1ms, 10ms, 100ms or 1s.
    UnknownUnit(String),
    /// An epoch that is not an instant of the form `2025-01-01T00:00:00.000Z`, years 0001 to 9999.
    Epoch(String),
    /// An epoch without a zone.
    EpochWithoutZone(String),
    /// A time that does not end before timestamptz does (294277-01-01).
    EndsTooLate {
        /// The width of `time`, in bits.
        bits: u32,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "layout is empty"),
            Self::TooLong { bytes } => {
                write!(f, "layout has {bytes} bytes, which exceeds the limit of {}", MAX_TEXT)
            }
            Self::UnknownName(word) => write!(f, "unknown layout \"{word}\""),
            Self::Malformed(word) => write!(f, "layout word \"{word}\" is not of the form name:value"),
            Self::UnknownWord(word) => write!(f, "unknown layout field \"{word}\""),
            Self::Repeated(word) => write!(f, "layout word \"{word}\" repeats a field"),
            Self::Width { word, max } => {
                write!(f, "width in layout word \"{word}\" is outside the range 1..{max}")
            }
            Self::TimeNotFirst(word) => {
                write!(f, "layout word \"{word}\" comes before \"time\", which must be the first field")
            }
            Self::OutOfOrder(word) => {
                write!(f, "layout word \"{word}\" is out of order: fields come first, then unit, then epoch")
            }
            Self::Missing(name) => write!(f, "layout has no \"{name}\""),
            Self::TooWide { bits } => write!(f, "layout fields add up to {bits} bits, which exceeds the limit of 63"),
            Self::UnknownUnit(word) => {
                write!(f, "unit in layout word \"{word}\" is not one of 1ms, 10ms, 100ms, 1s")
            }
            Self::Epoch(word) => {
                write!(f, "epoch in layout word \"{word}\" is not an instant in the years 0001 to 9999")
            }
            Self::EpochWithoutZone(word) => write!(f, "epoch in layout word \"{word}\" has no time zone"),
            Self::EndsTooLate { bits } => {
                write!(f, "layout word \"time:{bits}\" reaches beyond the last instant of timestamptz")
            }
        }
    }
}

impl std::error::Error for LayoutError {}

#[cfg(test)]
mod tests {
    use super::*;

    const TAIL: &str = "unit:1ms epoch:2025-01-01T00:00:00Z";

    #[test]
    fn built_in_layouts_are_read_and_known_by_name() {
        for (name, line) in BUILT_IN {
            let layout = Layout::parse(name).unwrap();
            assert_eq!(layout.to_string(), line, "{name}");
            assert_eq!(layout.built_in_name(), Some(name));
        }
        assert_eq!(Layout::parse(&format!("time:40 sequence:10 {TAIL}")).unwrap().built_in_name(), None);
    }

    #[test]
    fn the_epochs_zone_and_white_space_make_no_difference() {
        let text = " time:28\tworker:22 sequence:13  unit:1s\nepoch:2016-05-20T00:00:00+08:00 ";
        assert_eq!(Layout::parse(text), Layout::parse("baidu"));
        // As much as a text may have.
        assert_eq!(Layout::parse(&format!("{:MAX_TEXT$}", "baidu")), Layout::parse("baidu"));
    }

    #[test]
    fn js53_ends_at_two_to_the_53() {
        assert_eq!(Layout::parse("js53").unwrap().max_id(), (1 << 53) - 1);
        assert_eq!(Layout::parse("snowflake").unwrap().max_id(), i64::MAX);
    }

    #[test]
    fn ids_per_second_count_ticks_and_sequence() {
        let of = |name| Layout::parse(name).unwrap().ids_per_second();
        assert_eq!((of("snowflake"), of("js53"), of("sonyflake")), (4_096_000, 65_536, 25_600));
    }

    #[test]
    fn what_is_no_layout_is_refused_with_the_offending_word() {
        use LayoutError as E;
        let long = format!("x{}", "é".repeat(100));
        for (text, error) in [
            ("", E::Empty),
            (" \n", E::Empty),
            (&"x".repeat(257), E::TooLong { bytes: 257 }),
            ("twiter", E::UnknownName("twiter".into())),
            ("Twitter", E::UnknownName("Twitter".into())),
            (&long, E::UnknownName(format!("x{}...", "é".repeat(39)))),
            ("twitter js53", E::Malformed("twitter".into())),
            (":", E::UnknownWord(":".into())),
            ("time: sequence:1", E::Width { word: "time:".into(), max: 62 }),
            ("time:0 sequence:1", E::Width { word: "time:0".into(), max: 62 }),
            ("time:63 sequence:1", E::Width { word: "time:63".into(), max: 62 }),
            ("time:+4 sequence:1", E::Width { word: "time:+4".into(), max: 62 }),
            ("time:41 worker:32", E::Width { word: "worker:32".into(), max: 31 }),
            ("time:41 worker:0", E::Width { word: "worker:0".into(), max: 31 }),
            ("time:41 sequence:99999999999", E::Width { word: "sequence:99999999999".into(), max: 31 }),
            ("time:41 machine:10", E::UnknownWord("machine:10".into())),
            ("time:41 worker:5 worker:6", E::Repeated("worker:6".into())),
            ("time:41 unit:1s unit:1s", E::Repeated("unit:1s".into())),
            ("worker:5 time:41", E::TimeNotFirst("worker:5".into())),
            ("time:41 unit:1s sequence:5", E::OutOfOrder("sequence:5".into())),
            ("time:41 epoch:2025-01-01T00:00:00Z unit:1s", E::OutOfOrder("unit:1s".into())),
            ("time:41 unit:2ms", E::UnknownUnit("unit:2ms".into())),
            ("time:41 epoch:yesterday", E::Epoch("epoch:yesterday".into())),
            ("time:41 epoch:2025-01-01T00:00:00", E::EpochWithoutZone("epoch:2025-01-01T00:00:00".into())),
            ("time:41 worker:10", E::Missing("sequence")),
            ("unit:1ms", E::Missing("time")),
            ("time:41 worker:10 sequence:12", E::Missing("unit")),
            ("time:41 worker:10 sequence:12 unit:1ms", E::Missing("epoch")),
            (&format!("time:41 worker:11 sequence:12 {TAIL}"), E::TooWide { bits: 64 }),
            (&format!("time:62 worker:31 sequence:31 datacenter:31 {TAIL}"), E::TooWide { bits: 155 }),
            (&format!("time:54 sequence:1 {TAIL}"), E::EndsTooLate { bits: 54 }),
            ("time:62 sequence:1 unit:1s epoch:2025-01-01T00:00:00Z", E::EndsTooLate { bits: 62 }),
        ] {
            assert_eq!(Layout::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn errors_say_what_is_wrong_with_a_layout() {
        let error = Layout::parse("time:41 unit:2ms").unwrap_err();
        assert_eq!(error.to_string(), "unit in layout word \"unit:2ms\" is not one of 1ms, 10ms, 100ms, 1s");
    }
}

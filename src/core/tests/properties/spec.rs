//! Models a layout in plain arithmetic: with products, quotients and i128 instead of the shifts of
//! `layout.rs` and `id/parts.rs`.
//!
//! This is the oracle of the properties, with the strategy that makes random layouts. It must share
//! no code with the library; calendar dates come from the `time` crate. The generator's oracle is
//! in `model.rs`.

use proptest::prelude::*;
use snowflake_core::id::layout::{Field, Layout};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

/// The first instant that timestamptz cannot hold, 294277-01-01, in milliseconds since 1970.
pub const TIMESTAMPTZ_END_MS: i128 = 9_224_318_016_000_000;

/// The first and the last millisecond of the years that the grammar can write, 0001 to 9999.
pub const WRITABLE_MS: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;

/// A line of the grammar, whether or not it is a valid layout.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Fields and their widths in bits, from the high bits to the low.
    pub fields: Vec<(Field, u32)>,
    /// The unit's name.
    pub unit: &'static str,
    /// The start of tick 0, in milliseconds since 1970.
    pub epoch_ms: i64,
}

/// A number for each field, indexed by [`place`]; 0 for a field that the layout lacks.
pub type Numbers = [i128; 4];

/// Returns a field's index in [`Numbers`].
pub fn place(field: Field) -> usize {
    match field {
        Field::Time => 0,
        Field::Datacenter => 1,
        Field::Worker => 2,
        Field::Sequence => 3,
    }
}

/// Formats an instant as in RFC 3339, in UTC with milliseconds.
pub fn rfc_3339(ms: i64) -> String {
    let instant = OffsetDateTime::UNIX_EPOCH + Duration::milliseconds(ms);
    let seconds = (instant - Duration::milliseconds(ms.rem_euclid(1000))).format(&Rfc3339).unwrap();
    format!("{}.{:03}Z", seconds.strip_suffix('Z').unwrap(), ms.rem_euclid(1000))
}

impl Spec {
    /// Formats the line as a layout prints itself.
    pub fn text(&self) -> String {
        let fields: String = self.fields.iter().map(|(field, bits)| format!("{}:{bits} ", field.name())).collect();
        let epoch = rfc_3339(self.epoch_ms);
        let epoch = epoch.strip_suffix(".000Z").map_or(epoch.clone(), |whole| format!("{whole}Z"));
        format!("{fields}unit:{} epoch:{epoch}", self.unit)
    }

    /// Parses the line.
    pub fn layout(&self) -> Layout {
        let text = self.text();
        Layout::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Returns whether the line is a layout, by the documented rules.
    pub fn is_valid(&self) -> bool {
        let widths_fit = self.fields.iter().all(|(field, bits)| match field {
            Field::Time => (1..=62).contains(bits),
            _ => (1..=31).contains(bits),
        });
        let once = |field: Field| self.fields.iter().filter(|(other, _)| *other == field).count();
        widths_fit
            && self.fields.first().is_some_and(|(field, _)| *field == Field::Time)
            && once(Field::Time) == 1
            && once(Field::Sequence) == 1
            && once(Field::Datacenter) <= 1
            && once(Field::Worker) <= 1
            && self.fields.iter().map(|(_, bits)| bits).sum::<u32>() <= 63
            && WRITABLE_MS.contains(&self.epoch_ms)
            && self.start_ms(self.size(Field::Time)) <= TIMESTAMPTZ_END_MS
    }

    /// Returns a tick's length in milliseconds.
    pub fn unit_ms(&self) -> i128 {
        match self.unit {
            "1ms" => 1,
            "10ms" => 10,
            "100ms" => 100,
            "1s" => 1000,
            other => unreachable!("{other}"),
        }
    }

    /// Returns a field's width in bits, 0 if the layout lacks it.
    pub fn bits(&self, field: Field) -> u32 {
        self.fields.iter().find(|(other, _)| *other == field).map_or(0, |(_, bits)| *bits)
    }

    /// Returns how many numbers a field holds, 1 if the layout lacks it.
    pub fn size(&self, field: Field) -> i128 {
        2_i128.pow(self.bits(field))
    }

    /// Returns how many ids there are.
    pub fn ids(&self) -> i128 {
        self.fields.iter().map(|(field, _)| self.size(*field)).product()
    }

    /// Returns the tick that holds an instant; negative before the epoch.
    pub fn tick_at(&self, ms: i128) -> i128 {
        (ms - i128::from(self.epoch_ms)).div_euclid(self.unit_ms())
    }

    /// Returns the start of a tick, in milliseconds since 1970.
    pub fn start_ms(&self, tick: i128) -> i128 {
        i128::from(self.epoch_ms) + tick * self.unit_ms()
    }

    /// Returns the last tick.
    pub fn last_tick(&self) -> i128 {
        self.size(Field::Time) - 1
    }

    /// Composes an id, like a number of mixed radix.
    pub fn compose(&self, numbers: Numbers) -> i128 {
        self.fields.iter().fold(0, |id, (field, _)| id * self.size(*field) + numbers[place(*field)])
    }

    /// Takes an id apart.
    pub fn decompose(&self, mut id: i128) -> Numbers {
        let mut numbers = Numbers::default();
        for (field, _) in self.fields.iter().rev() {
            numbers[place(*field)] = id % self.size(*field);
            id /= self.size(*field);
        }
        numbers
    }

    /// Returns a field's number as the library takes it: `None` for a field that the layout lacks.
    pub fn given(&self, field: Field, numbers: Numbers) -> Option<i64> {
        (self.bits(field) > 0).then(|| numbers[place(field)] as i64)
    }
}

/// Random valid layouts of every order and shape. They often use all 63 bits, or all of
/// timestamptz.
pub fn specs() -> impl Strategy<Value = Spec> {
    specs_with_sequence(prop_oneof![1..=8_u32, 1..=31_u32])
}

/// As [`specs`], with the sequence's width from `sequence_bits`.
pub fn specs_with_sequence(sequence_bits: impl Strategy<Value = u32>) -> impl Strategy<Value = Spec> {
    let optional = || prop_oneof![Just(0), 1..=31_u32];
    let order = Just([Field::Datacenter, Field::Worker, Field::Sequence]).prop_shuffle();
    let time_bits = prop_oneof![1..=62_u32, 20..=62_u32, Just(62)];
    (sequence_bits, optional(), optional(), order, time_bits, units(), epochs_ms()).prop_map(
        |(sequence, datacenter, worker, order, time, unit, epoch_ms)| {
            let mut widths = [0, datacenter, worker, sequence];
            // Time needs a bit of the 63.
            while widths.iter().sum::<u32>() > 62 {
                *widths.iter_mut().max().unwrap() -= 1;
            }
            widths[0] = time.min(63 - widths.iter().sum::<u32>());
            let fields = [Field::Time].into_iter().chain(order).map(|field| (field, widths[place(field)]));
            let mut spec = Spec { fields: fields.filter(|(_, bits)| *bits > 0).collect(), unit, epoch_ms };
            while spec.start_ms(spec.size(Field::Time)) > TIMESTAMPTZ_END_MS {
                spec.fields[0].1 -= 1;
            }
            spec
        },
    )
}

/// Random lines that mostly break a rule: repeated, missing and misplaced fields, any widths.
pub fn broken_specs() -> impl Strategy<Value = Spec> {
    let field = prop::sample::select(vec![Field::Time, Field::Datacenter, Field::Worker, Field::Sequence]);
    let random = prop::collection::vec((field, 0..=70_u32), 0..=6);
    // Near misses: a valid layout with two fields swapped and one width changed, unless these
    // happen to be the same.
    let near = (specs(), any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..=64_u32).prop_map(
        |(spec, one, other, bits)| {
            let mut fields = spec.fields;
            let (one, other) = (one.index(fields.len()), other.index(fields.len()));
            fields.swap(one, other);
            fields[one].1 = bits;
            fields
        },
    );
    (prop_oneof![random, near], units(), epochs_ms()).prop_map(|(fields, unit, epoch_ms)| Spec {
        fields,
        unit,
        epoch_ms,
    })
}

fn units() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["1ms", "10ms", "100ms", "1s"])
}

/// Instants that the grammar can write: of recent years, of any year, and the outermost.
pub fn epochs_ms() -> impl Strategy<Value = i64> {
    prop_oneof![
        (0..=63_i64).prop_map(|year| year * 31_556_952_000),
        0..=2_000_000_000_000_i64,
        WRITABLE_MS,
        Just(*WRITABLE_MS.start()),
        Just(*WRITABLE_MS.end()),
    ]
}

/// A number from 0 to `max`, often one of these two.
pub fn up_to(max: i128) -> impl Strategy<Value = i128> {
    prop_oneof![1 => Just(0), 1 => Just(max), 4 => 0..=max]
}

/// A number for each field.
pub fn numbers(spec: &Spec) -> impl Strategy<Value = Numbers> + use<> {
    [Field::Time, Field::Datacenter, Field::Worker, Field::Sequence].map(|field| up_to(spec.size(field) - 1))
}

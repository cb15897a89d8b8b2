//! Values that an id's time is compared with: around the ticks, at the ends of all ranges, of every
//! kind that a query can have.

use super::queries::{Item, Spelling, Writer};
use super::world::{literal, time_of};

/// The types that an id's time can be compared with, each with the relations' column of that type.
const TYPES: [(&str, &str); 3] = [("timestamptz", "ts"), ("date", "d"), ("timestamp", "w")];

/// The ends of the types, and what lies beyond those of timestamptz.
const ENDS: [&str; 14] = [
    "timestamptz 'infinity'",
    "timestamptz '-infinity'",
    "date 'infinity'",
    "date '-infinity'",
    "timestamp 'infinity'",
    "timestamp '-infinity'",
    "timestamptz '294276-12-31 23:59:59.999999+00'",
    "timestamptz '4714-11-24 00:00:00+00 BC'",
    "date '5874897-12-31'",
    "date '4713-01-01 BC'",
    "date '294277-01-01'",
    "timestamp '294276-12-31 23:59:59.999999'",
    "timestamp '4714-11-24 00:00:00 BC'",
    "timestamptz '0001-01-01 00:00:00+00'",
];

impl Writer<'_> {
    /// An expression of any of the types.
    pub fn moment(&mut self, item: &Item, reader: usize, others: &[Item]) -> String {
        if self.random.one_in(12) {
            return self.random.pick(&ENDS).to_owned();
        }
        let kind = self.random.weighed(&[(6, 0), (2, 1), (2, 2)]);
        self.moment_of(kind, item, reader, others)
    }

    /// An expression of type timestamptz.
    pub fn instant(&mut self, item: &Item, reader: usize, others: &[Item]) -> String {
        self.moment_of(0, item, reader, others)
    }

    /// An expression of type timestamptz that refers to no relation.
    pub fn constant(&mut self, item: &Item, reader: usize) -> String {
        if self.parameters.is_some() {
            self.parameter("timestamptz", item, reader)
        } else {
            self.near("timestamptz", item, reader)
        }
    }

    fn moment_of(&mut self, kind: usize, item: &Item, reader: usize, others: &[Item]) -> String {
        let (name, column) = TYPES[kind];
        let near = self.near(name, item, reader);
        let instant = self.near("timestamptz", item, reader);
        if self.parameters.is_some() && self.random.one_in(2) {
            return self.parameter(name, item, reader);
        }
        match self.random.below(20) {
            0 => format!("NULL::{name}"),
            1 if kind == 1 => format!("current_date - (current_date - {near})"),
            1 => format!("greatest(now() - interval '300 years', {instant})::{name}"),
            2 if kind == 0 => format!("now() - (now() - {near})"),
            2 => format!("({instant} AT TIME ZONE 'America/New_York')::{name}"),
            3 => self.subquery(column, item, false),
            4 => self.subquery(column, item, true),
            5 => format!("{}.{column}", item.alias),
            6 if kind == 0 => format!("{near} + random() * interval '0'"),
            7 if kind == 0 => format!("same({near})"),
            8 if kind == 0 => format!("same_slowly({near})"),
            9 if kind == 0 && self.random.one_in(12) => format!("{near} + interval '1 s' / 0"),
            10..=13 if !others.is_empty() => {
                let at = self.random.below(others.len());
                let other = &others[at];
                match self.time(other) {
                    time if kind == 0 && self.random.one_in(2) => time.sql,
                    _ => format!("{}.{column}", other.alias),
                }
            }
            _ => near,
        }
    }

    /// A literal around one of the ticks, or around an end of the layout.
    pub fn near(&self, kind: &str, item: &Item, reader: usize) -> String {
        let random = &self.random;
        let layout = &self.world.ids[reader].layout;
        let tick_us = match random.below(16) {
            0 => i128::from(layout.epoch_ms()) * 1000,
            1 => i128::from(layout.last_instant_ms()) * 1000,
            _ => self.world.ids[item.relation.of].tick_us(layout, random),
        };
        let unit_us = layout.unit().ms() * 1000;
        let off_us = random.pick(&[0, 0, 0, -1, 1, unit_us, -unit_us, unit_us - 1, unit_us / 2, 3 * unit_us]);
        let at = literal(kind, tick_us + i128::from(off_us));
        match kind {
            "date" => format!("{at} + {}", random.of(-1..=1)),
            // The instant itself in any time zone. A literal without a zone means it only in UTC.
            "timestamp" if random.one_in(2) && tick_us < 200_000_000_000_000_000 => {
                format!("{}::timestamp", literal("timestamptz", tick_us + i128::from(off_us)))
            }
            _ => at,
        }
    }

    fn subquery(&mut self, column: &str, item: &Item, correlated: bool) -> String {
        let other = self.plain_item();
        let choice = self.random.pick(&["max", "min"]);
        let condition = if correlated {
            format!("{}.n = {}.n", other.alias, item.alias)
        } else {
            format!("{}.n < {}", other.alias, self.random.below(6))
        };
        let Item { alias, relation, .. } = other;
        format!("(SELECT {choice}({alias}.{column}) FROM {} {alias} WHERE {condition})", relation.name)
    }

    /// A parameter of the statement, with its values for three executions.
    pub fn parameter(&mut self, name: &'static str, item: &Item, reader: usize) -> String {
        let values = [0; 3].map(|_| match self.random.below(12) {
            0 => format!("NULL::{name}"),
            1 => format!("{name} 'infinity'"),
            2 => format!("{name} '-infinity'"),
            _ => self.near(name, item, reader),
        });
        self.parameter_of(name, values)
    }

    /// A parameter with the given values.
    pub fn parameter_of(&mut self, name: &'static str, values: [String; 3]) -> String {
        let parameters = self.parameters.as_mut().expect("the statement is prepared");
        parameters.push((name, values));
        format!("${}", parameters.len())
    }

    /// The time of an item's id, in one of the spellings that it offers.
    pub fn time(&mut self, item: &Item) -> Time {
        let Item { alias, relation, parsed } = item;
        let id = relation.shows_id.then(|| format!("{alias}.id"));
        if let Some(parsed) = parsed.as_ref().filter(|_| !self.random.one_in(3)) {
            let sql = format!("{}.created_at", parsed.alias);
            return Time { sql, reader: parsed.reader, id: id.filter(|_| parsed.is_total) };
        }
        match (relation.created_at, &id) {
            (Some(reader), None) => Time { sql: format!("{alias}.created_at"), reader, id },
            (Some(reader), _) if self.random.one_in(2) => {
                let is_its_time = relation.is_plain || self.spelling == Spelling::BoundOfTheIdBeside;
                Time { sql: format!("{alias}.created_at"), reader, id: id.filter(|_| is_its_time) }
            }
            (_, Some(column)) => {
                let reader = self.world.reader(relation.of, &self.random);
                Time { sql: time_of(column, &self.world.ids[reader].text, reader == 0, &self.random), reader, id }
            }
            (None, None) => unreachable!("a relation shows its id or its time"),
        }
    }
}

/// An id's time.
pub struct Time {
    pub sql: String,
    /// The layout that reads it.
    pub reader: usize,
    /// The id, if it is shown, and if this is its time in every row.
    pub id: Option<String>,
}

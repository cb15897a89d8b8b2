//! Simulates a server's write-ahead log, and what its databases hold: the log's records, applied in
//! order.
//!
//! A crash keeps a prefix of the log, at least as far as it is flushed. A standby, a backup and a
//! recovery to a point in time hold a prefix of what is flushed.

use std::ops::Range;
use std::rc::Rc;

use snowflake_core::draw::mark::{Stored, StoredNumber};
use snowflake_core::id::identity::LaneName;

/// An id, and what the checks need to know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id {
    pub id: i64,
    pub lane: LaneName,
    /// Its datacenter and worker numbers.
    pub numbers: (Option<u32>, Option<u32>),
    /// Its layout's fingerprint.
    pub layout: i64,
    /// The server's numbers when it was drawn, as the database stores them.
    pub identity: i64,
    /// The fleet of its database when it was drawn, where there are two.
    pub of_fleet: i64,
    /// The end of its tick, in milliseconds since 1970.
    pub end_ms: i64,
}

/// The greatest settled id, and the layout of its ids. (A database that has lost its first draw in
/// a crash may be drawn in with another layout.)
#[derive(Debug, Clone, Copy, Default)]
pub struct Settled {
    layout: i64,
    id: i64,
    /// The greatest one from when the stored numbers had no backup lane. Only that one is above
    /// nothing that is drawn after a backup lane was switched on.
    id_without_backup: i64,
}

impl Settled {
    /// Makes one from when the stored numbers were `identity`.
    pub fn new(layout: i64, identity: Option<i64>, id: i64) -> Self {
        let of_backup = identity.is_some_and(|code| code & 1 == 1);
        Self { layout, id, id_without_backup: if of_backup { 0 } else { id } }
    }

    /// Returns the id, if it is of this layout.
    pub fn id_in(&self, layout: i64) -> i64 {
        if self.layout == layout { self.id } else { 0 }
    }

    /// Returns the id below which a server draws none.
    pub fn limit_in(&self, layout: i64, has_backup: bool) -> i64 {
        if self.layout == layout && has_backup { self.id_without_backup } else { self.id_in(layout) }
    }

    /// Returns what holds after others, too.
    pub fn and(&self, other: &Self) -> Self {
        if self.layout != other.layout {
            return if other.id > 0 { *other } else { *self };
        }
        let id_without_backup = self.id_without_backup.max(other.id_without_backup);
        Self { id: self.id.max(other.id), id_without_backup, ..*self }
    }
}

/// The content of one database.
#[derive(Debug, Clone)]
pub struct Contents {
    pub stored: Stored,
    /// The ids in its rows, drawn in it or restored into it.
    pub rows: Vec<Id>,
    /// For each lane, the latest tick end of a row, which the mark has to cover.
    pub rows_end_ms: [i64; 2],
    /// What `snowflake_advance` has promised, and at which event.
    pub advanced: (i64, u64),
    /// The greatest settled id that a reader has stored.
    pub settled: Settled,
    /// How often the extension was created. Each time, its sequences are new ones.
    pub generation: u32,
}

impl Contents {
    fn new(generation: u32) -> Self {
        let stored = Stored { marks_ms: [0; 2], local_ms: [0; 2], layout: None, identity: None, fleet: None };
        Self {
            stored,
            rows: Vec::new(),
            rows_end_ms: [0; 2],
            advanced: (0, 0),
            settled: Settled::default(),
            generation,
        }
    }
}

/// A log record. The first number is the database's.
#[derive(Debug, Clone)]
pub enum Record {
    /// The protocol stores a number. With `resets`, it is lower than before on purpose.
    Write { database: usize, value: StoredNumber, number: i64, resets: bool },
    /// A row is committed.
    Row(usize, Id),
    /// `snowflake_advance` has returned.
    Advanced(usize, (i64, u64)),
    /// A reader stores up to which id it has read.
    Settled(usize, Settled),
    /// CREATE DATABASE, perhaps from a template.
    NewDatabase(Option<usize>),
    /// DROP EXTENSION and CREATE EXTENSION. Promises about earlier ids end here.
    NewExtension(usize),
    /// The rows of a dump are restored, after its numbers were written.
    Restored(usize, Rc<Contents>),
}

fn apply(databases: &mut Vec<Contents>, record: &Record) {
    match record {
        Record::Write { database, value, number, resets } => {
            let contents = &mut databases[*database];
            // Readers begin anew, also where the log ends within the reset. Once one copy of a mark
            // is lowered, it covers no ids of the old number: a dump that is restored may lower the
            // other copy.
            if *resets {
                contents.settled = Settled::default();
                if let StoredNumber::Mark(lane) | StoredNumber::Local(lane) = value {
                    contents.rows_end_ms[*lane as usize] = 0;
                    contents.advanced = (0, 0);
                }
            }
            match value {
                StoredNumber::Mark(lane) => contents.stored.marks_ms[*lane as usize] = *number,
                StoredNumber::Local(lane) => contents.stored.local_ms[*lane as usize] = *number,
                StoredNumber::Layout => contents.stored.layout = Some(*number),
                StoredNumber::Identity => contents.stored.identity = Some(*number),
                StoredNumber::Fleet => contents.stored.fleet = Some(*number),
            }
        }
        Record::Row(database, id) => {
            let contents = &mut databases[*database];
            contents.rows.push(*id);
            let end_ms = &mut contents.rows_end_ms[id.lane as usize];
            *end_ms = id.end_ms.max(*end_ms);
        }
        Record::Advanced(database, advanced) => {
            let contents = &mut databases[*database];
            contents.advanced = contents.advanced.max(*advanced);
        }
        Record::Settled(database, settled) => {
            let contents = &mut databases[*database];
            contents.settled = contents.settled.and(settled);
        }
        Record::NewDatabase(template) => {
            let contents = template.map_or(Contents::new(0), |template| databases[template].clone());
            databases.push(contents);
        }
        Record::NewExtension(database) => {
            let contents = &mut databases[*database];
            *contents = Contents::new(contents.generation + 1);
        }
        Record::Restored(database, dump) => {
            let contents = &mut databases[*database];
            contents.rows.extend(&dump.rows);
            contents.advanced = contents.advanced.max(dump.advanced);
            contents.settled = contents.settled.and(&dump.settled);
            for (end_ms, restored_ms) in contents.rows_end_ms.iter_mut().zip(dump.rows_end_ms) {
                *end_ms = restored_ms.max(*end_ms);
            }
        }
    }
}

/// A server's log, and its databases: after all of it, and after what is flushed.
#[derive(Debug, Default)]
pub struct Log {
    records: Vec<Record>,
    flushed: usize,
    pub present: Vec<Contents>,
    pub durable: Vec<Contents>,
    /// The spans in which a dump is restored. No promise holds for a copy that ends there.
    restores: Vec<Range<usize>>,
}

impl Log {
    /// Copies the log up to `end` into a new data directory.
    pub fn copy(&self, end: usize) -> Self {
        let end = self.restores.iter().find(|range| range.contains(&end)).map_or(end, |range| range.end);
        let restores = self.restores.iter().filter(|range| range.end <= end).cloned().collect();
        let mut copy = Self { records: self.records[..end].to_vec(), restores, ..Self::default() };
        copy.records.iter().for_each(|record| apply(&mut copy.present, record));
        copy.durable = copy.present.clone();
        copy.flushed = end;
        copy
    }

    /// Returns how many records there are.
    pub fn inserted(&self) -> usize {
        self.records.len()
    }

    /// Returns how many of them are durable.
    pub fn flushed(&self) -> usize {
        self.flushed
    }

    pub fn insert(&mut self, record: Record) {
        apply(&mut self.present, &record);
        self.records.push(record);
    }

    pub fn flush(&mut self, end: usize) {
        while self.flushed < end {
            apply(&mut self.durable, &self.records[self.flushed]);
            self.flushed += 1;
        }
    }

    /// Loses what comes after `end`, which is not before what is flushed.
    pub fn crash(&mut self, end: usize) {
        self.flush(end);
        self.records.truncate(end);
        self.present.clone_from(&self.durable);
    }

    /// Notes that a dump was restored since the log ended at `begin`.
    pub fn restored(&mut self, begin: usize) {
        self.restores.push(begin + 1..self.records.len());
    }
}

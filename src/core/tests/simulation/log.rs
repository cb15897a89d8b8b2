//! The write-ahead log of a simulated server, and what its databases hold: the log's records, applied in order.
//!
//! A crash keeps a prefix between what is flushed and what is inserted; a standby, a backup and a recovery to a point in
//! time hold a prefix of what is flushed.

use std::ops::Range;
use std::rc::Rc;

use snowflake_core::identity::LaneName;
use snowflake_core::mark::{Stored, Value};

/// An id, and what the checks want to know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id {
    pub id: i64,
    pub lane: LaneName,
    /// Datacenter and worker.
    pub numbers: (Option<u32>, Option<u32>),
    /// The layout's fingerprint.
    pub layout: i64,
    /// What the server's numbers were, as the database stores them.
    pub identity: i64,
    /// The end of its tick, in milliseconds since 1970.
    pub end_ms: i64,
}

/// What one database holds.
#[derive(Debug, Clone)]
pub struct Contents {
    pub stored: Stored,
    /// The ids that were drawn in it, or restored into it, and are stored in rows.
    pub rows: Vec<Id>,
    /// For each lane, the latest end of a row's tick that the mark has to cover.
    pub rows_end_ms: [i64; 2],
    /// What `snowflake_advance` has promised, and when (in events) it did.
    pub advanced: (i64, u64),
    /// How often the extension was made: its sequences are others then.
    pub generation: u32,
}

impl Contents {
    fn new(generation: u32) -> Self {
        let stored = Stored { marks_ms: [0; 2], local_ms: [0; 2], layout: None, identity: None };
        Self { stored, rows: Vec::new(), rows_end_ms: [0; 2], advanced: (0, 0), generation }
    }
}

/// What is logged. The first number is the database's.
#[derive(Debug, Clone)]
pub enum Record {
    /// The protocol stores a number. With `resets`, on purpose lower than before.
    Write { database: usize, value: Value, number: i64, resets: bool },
    /// A row is committed.
    Row(usize, Id),
    /// `snowflake_advance` has returned.
    Advanced(usize, (i64, u64)),
    /// CREATE DATABASE, perhaps from a template.
    NewDatabase(Option<usize>),
    /// DROP EXTENSION and CREATE EXTENSION. What was drawn before is no longer promised anything.
    NewExtension(usize),
    /// The rows of a dump are restored, after its numbers were written.
    Restored(usize, Rc<Contents>),
}

fn apply(databases: &mut Vec<Contents>, record: &Record) {
    match record {
        Record::Write { database, value, number, resets } => {
            let contents = &mut databases[*database];
            match value {
                Value::Mark(lane) => {
                    contents.stored.marks_ms[*lane as usize] = *number;
                    if *resets {
                        contents.rows_end_ms[*lane as usize] = 0;
                        contents.advanced = (0, 0);
                    }
                }
                Value::Local(lane) => contents.stored.local_ms[*lane as usize] = *number,
                Value::Layout => contents.stored.layout = Some(*number),
                Value::Identity => contents.stored.identity = Some(*number),
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
            for (end_ms, restored_ms) in contents.rows_end_ms.iter_mut().zip(dump.rows_end_ms) {
                *end_ms = restored_ms.max(*end_ms);
            }
        }
    }
}

/// A server's log, and its databases after all of it and after what is flushed.
#[derive(Debug, Default)]
pub struct Log {
    records: Vec<Record>,
    flushed: usize,
    pub present: Vec<Contents>,
    pub durable: Vec<Contents>,
    /// Where a dump is being restored: no promise holds for a copy that ends there.
    restores: Vec<Range<usize>>,
}

impl Log {
    /// The log up to `end`, in a data directory of its own.
    pub fn copy(&self, end: usize) -> Self {
        let end = self.restores.iter().find(|range| range.contains(&end)).map_or(end, |range| range.end);
        let restores = self.restores.iter().filter(|range| range.end <= end).cloned().collect();
        let mut copy = Self { records: self.records[..end].to_vec(), restores, ..Self::default() };
        copy.records.iter().for_each(|record| apply(&mut copy.present, record));
        copy.durable = copy.present.clone();
        copy.flushed = end;
        copy
    }

    /// How many records there are.
    pub fn inserted(&self) -> usize {
        self.records.len()
    }

    /// How many of them are durable.
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

    /// Says that a dump was being restored since the log ended at `begin`.
    pub fn restored(&mut self, begin: usize) {
        self.restores.push(begin + 1..self.records.len());
    }
}

//! A simulated registry: a log of changes on one machine, of which a standby or a backup holds a
//! prefix. It can be away, fail over, and be restored, copied, and made again after a loss.

use std::collections::BTreeMap;

use snowflake_core::registry::{Change, Fleet, Incarnation, NumberRecord, Swap, SwapAnswer};

/// Which kind of store it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// PostgreSQL: a failover shows another timeline, and may lose the last changes. The
    /// incarnation is compared in the swap.
    Postgres,
    /// PostgreSQL with a synchronous standby, for which an operator vouches. What can be read may
    /// still be lost.
    Synchronous,
    /// etcd: a failover loses nothing. The incarnation is only in the answer.
    Etcd,
}

/// What a registry has stored, and where.
#[derive(Debug, Clone)]
pub struct Store {
    pub kind: Kind,
    log: Vec<Change>,
    /// How many changes a synchronous standby has.
    pub synced: usize,
    pub fleet: Fleet,
    pub records: BTreeMap<i64, NumberRecord>,
    pub incarnation: Incarnation,
    /// How far the machine's clock is from the right time.
    pub offset_ms: i64,
    /// When it was started, by the right time.
    pub started_ms: i64,
}

impl Store {
    pub fn new(kind: Kind, fleet: Fleet, offset_ms: i64, started_ms: i64) -> Self {
        let (log, records, incarnation) = (vec![Change::Fleet(fleet)], BTreeMap::new(), fleet.incarnation);
        Self { kind, log, synced: 1, fleet, records, incarnation, offset_ms, started_ms }
    }

    /// Whether what a swap compares is as it was read. With `number_alone`, only the number's
    /// record counts.
    pub fn compares(&self, swap: &Swap, number_alone: bool) -> bool {
        let as_read = swap.fleet == self.fleet.version
            && (self.kind == Kind::Etcd || swap.incarnation == self.incarnation)
            && !self.fleet.closed;
        (as_read || number_alone)
            && match swap.change {
                Change::Fleet(_) => as_read,
                Change::Number { worker, was, .. } => self.records.get(&worker).map(|record| record.nonce) == was,
            }
    }

    pub fn write(&mut self, change: Change) -> SwapAnswer {
        self.log.push(change);
        self.apply(change);
        SwapAnswer::Done(self.incarnation)
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Fleet(fleet) => self.fleet = fleet,
            Change::Number { worker, record, .. } => _ = self.records.insert(worker, record),
        }
    }

    /// Returns how many changes there are.
    pub fn changes(&self) -> usize {
        self.log.len()
    }

    /// Returns a copy that lacks what comes after the first `end` changes.
    pub fn prefix(&self, end: usize) -> Self {
        let Change::Fleet(first) = self.log[0] else { unreachable!("the first change makes the fleet") };
        let mut copy = Self::new(self.kind, first, self.offset_ms, self.started_ms);
        for change in &self.log[1..end] {
            copy.write(*change);
        }
        copy.synced = self.synced.min(end);
        copy.incarnation = self.incarnation;
        copy
    }
}

//! What a session has answered, so that each statement gets one answer.
//!
//! PostgreSQL may call a STABLE function as often as it likes in one statement: for each partition,
//! each rescan, each row. If the answers differed, a reader would get rows up to a later answer
//! from one partition, and none between both answers from another. So a session remembers the
//! answer of each snapshot, and gives it again.
//!
//! **Equal snapshots see the same rows**, so a later statement of the transaction may share the
//! answer. Snapshots are compared as a whole, because their numbers do not tell them apart: a
//! transaction that is being prepared stands twice among the running ones for a while.
//!
//! **The order of snapshots.** No transaction is added to the running ones below `xmax`, and each
//! that ends makes them fewer. So of two snapshots, the one with the greater `xmax` is the later
//! one, and of two with one `xmax` that with fewer running transactions, each counted once. All
//! snapshots of a session can be compared like this, also exported ones.
//!
//! **An answer stays right.** A later snapshot sees all that an earlier one has seen, and nothing
//! is drawn below an answer. So in a session, a later snapshot gets at least what an earlier one
//! got, though runs make the answers to old snapshots lower as time goes by.

/// A statement's snapshot, in PostgreSQL's numbers.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    /// The session's local number of its transaction.
    pub transaction: u32,
    /// The first full transaction id that the snapshot does not know.
    pub xmax: u64,
    /// The transactions below it that run for the snapshot, in the order in which the snapshot has
    /// them, without subtransactions. Copies of a snapshot have them in the same order.
    pub running: &'a [u32],
    /// The session's own transaction, if it has an xid below `xmax`. A snapshot leaves it out, and
    /// the next one has it if it was prepared.
    pub own: Option<u32>,
}

/// How late a snapshot was taken: `xmax`, and how few transactions run.
type Lateness = (u64, std::cmp::Reverse<usize>);

/// The statement's answer is no longer remembered, and another one might be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgotten;

/// How many answers are remembered: of so many different snapshots that are used in turn, in one
/// transaction.
pub const MOST: usize = 128;

/// What a session remembers.
#[derive(Debug)]
pub struct Answers {
    /// The statement that asked last stands last.
    known: Vec<Answer>,
    /// The transaction of the answer that was forgotten last; how late the latest of all snapshots
    /// was whose answers were forgotten; and the greatest of these answers.
    forgotten: Option<(u32, Lateness, i64)>,
}

#[derive(Debug)]
struct Answer {
    transaction: u32,
    lateness: Lateness,
    running: Box<[u32]>,
    id: i64,
}

fn lateness(asking: &Asking<'_>) -> Lateness {
    let mut xids: Vec<_> = asking.running.iter().chain(&asking.own).collect();
    xids.sort_unstable();
    xids.dedup();
    (asking.xmax, std::cmp::Reverse(xids.len()))
}

impl Answers {
    /// Begins with none.
    #[allow(clippy::new_without_default, reason = "a default cannot make a static")]
    pub const fn new() -> Self {
        Self { known: Vec::new(), forgotten: None }
    }

    /// Returns what this snapshot was answered in the same transaction, `None` if it has not asked.
    ///
    /// # Errors
    /// [`Forgotten`]. A snapshot that is later than all others of its transaction is never refused.
    pub fn find(&mut self, asking: &Asking<'_>) -> Result<Option<i64>, Forgotten> {
        let Asking { transaction, xmax, running, .. } = *asking;
        let is_it =
            |known: &Answer| (known.transaction, known.lateness.0, &*known.running) == (transaction, xmax, running);
        if let Some(position) = self.known.iter().rposition(is_it) {
            self.known[position..].rotate_left(1);
            return Ok(self.known.last().map(|found| found.id));
        }
        match self.forgotten {
            Some((of, latest, _)) if of == transaction && lateness(asking) <= latest => Err(Forgotten),
            _ => Ok(None),
        }
    }

    /// Remembers the answer to a snapshot that [`find`](Self::find) has not found: `id`, but at
    /// least what an earlier snapshot of the session was answered. Returns it.
    pub fn give(&mut self, asking: &Asking<'_>, id: i64) -> i64 {
        let Asking { transaction, running, .. } = *asking;
        let lateness = lateness(asking);
        let known = self.known.iter().map(|known| (known.lateness, known.id));
        let all = known.chain(self.forgotten.map(|(_, latest, greatest)| (latest, greatest)));
        let id = all.filter(|(earlier, _)| *earlier <= lateness).map(|(_, answer)| answer).fold(id, i64::max);
        if self.known.len() == MOST {
            let Answer { transaction, lateness, id, .. } = self.known.remove(0);
            let (_, latest, greatest) = self.forgotten.unwrap_or((transaction, lateness, id));
            self.forgotten = Some((transaction, latest.max(lateness), greatest.max(id)));
        }
        // Statements of earlier transactions are over.
        let over = self.known.iter_mut().filter(|known| known.transaction != transaction);
        over.for_each(|known| known.running = Box::default());
        self.known.push(Answer { transaction, lateness, running: running.into(), id });
        id
    }
}

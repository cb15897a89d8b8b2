//! What a session remembers of its answers, beside PostgreSQL's array of processes.
//!
//! Transactions get xids, end and are prepared, one beside the other. A transaction that is being
//! prepared stands twice in the array for a while. The session takes snapshots, asks with them in
//! any order, and begins anew. An answer may be lower than it need be, and is never more than what
//! the snapshot sees as ended.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use snowflake_core::draw::settled::answers::{Answers, Asking, Forgotten, MOST};

use crate::config;

const PROCESSES: usize = 4;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A process gets an xid.
    Write(usize),
    /// It ends.
    End(usize),
    /// It is being prepared, and stands in the array twice.
    Prepare(usize),
    /// It is prepared, and stands there once.
    IsPrepared(usize),
    /// A prepared transaction ends.
    EndPrepared(usize),
    /// The session takes a snapshot for a statement.
    Statement,
    /// So many statements that ask, each after another process has ended a transaction.
    Statements(usize),
    /// A statement asks, and finds so much less than it could.
    Ask(usize, i64),
    /// The session ends its transaction, or prepares it, and begins another one.
    Begin(bool),
}

/// The session itself.
const SELF: usize = 0;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let process = || 0..PROCESSES;
    let other = || SELF + 1..PROCESSES;
    let step = prop_oneof![
        6 => process().prop_map(Step::Write),
        4 => other().prop_map(Step::End),
        4 => other().prop_map(Step::Prepare),
        4 => other().prop_map(Step::IsPrepared),
        3 => process().prop_map(Step::EndPrepared),
        6 => Just(Step::Statement),
        1 => (0..2 * MOST).prop_map(Step::Statements),
        12 => (0..6_usize, 0..3_i64).prop_map(|(which, less)| Step::Ask(which, less)),
        1 => any::<bool>().prop_map(Step::Begin),
    ];
    vec(step, 0..120)
}

struct Statement {
    xmax: u64,
    running: Vec<u32>,
    /// How many transactions had ended.
    ended: i64,
    answer: Option<i64>,
}

struct World {
    /// Whether snapshots are told apart by their numbers of xids alone.
    by_counts: bool,
    /// Whether the session counts its own transaction.
    knows_itself: bool,
    processes: [Option<u32>; PROCESSES],
    prepared: [Option<u32>; PROCESSES],
    next_xid: u32,
    /// The greatest xid that has ended.
    latest: u32,
    ended: i64,
    session: Answers,
    transaction: u32,
    statements: Vec<Statement>,
    /// How many snapshots of the transaction have asked.
    asked: usize,
    /// All answers of the session, and how much had ended for them.
    answers: Vec<(i64, i64)>,
    refused: usize,
}

impl World {
    fn new(by_counts: bool, knows_itself: bool) -> Self {
        Self {
            by_counts,
            knows_itself,
            processes: [None; PROCESSES],
            prepared: [None; PROCESSES],
            next_xid: 10,
            latest: 9,
            ended: 0,
            session: Answers::new(),
            transaction: 1,
            statements: Vec::new(),
            asked: 0,
            answers: Vec::new(),
            refused: 0,
        }
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Write(process) => self.write(process),
            // A process that is being prepared does nothing else.
            Step::End(process) if self.prepared[process] != self.processes[process] => {
                let xid = self.processes[process].take();
                self.over(xid);
            }
            Step::Prepare(process) if self.prepared[process].is_none() => {
                self.prepared[process] = self.processes[process];
            }
            Step::IsPrepared(process) if self.prepared[process] == self.processes[process] => {
                self.processes[process] = None;
            }
            Step::EndPrepared(process) if self.prepared[process] != self.processes[process] => {
                let xid = self.prepared[process].take();
                self.over(xid);
            }
            Step::Statement => self.statement(),
            Step::Statements(times) => {
                for _ in 0..times {
                    let xid = self.next_xid;
                    self.next_xid += 1;
                    self.over(Some(xid));
                    self.statement();
                    self.ask(self.statements.len() - 1, 0)?;
                }
            }
            Step::Ask(which, less) if !self.statements.is_empty() => {
                // The oldest, or one of the last.
                self.ask(if which == 0 { 0 } else { self.statements.len().saturating_sub(which) }, less)?;
            }
            Step::Begin(prepares) => {
                let own = self.processes[SELF].take();
                if prepares && self.prepared[SELF].is_none() {
                    self.prepared[SELF] = own;
                } else {
                    self.over(own);
                }
                self.transaction += 1;
                self.asked = 0;
                self.statements.clear();
            }
            _ => {}
        }
        Ok(())
    }

    fn write(&mut self, process: usize) {
        if self.processes[process].is_none() {
            self.processes[process] = Some(self.next_xid);
            self.next_xid += 1;
        }
    }

    fn over(&mut self, xid: Option<u32>) {
        if let Some(xid) = xid {
            self.latest = self.latest.max(xid);
            self.ended += 1;
        }
    }

    fn statement(&mut self) {
        let all = self.processes[SELF + 1..].iter().chain(&self.prepared).flatten();
        let running = all.copied().filter(|xid| *xid <= self.latest).collect();
        let xmax = u64::from(self.latest) + 1;
        self.statements.push(Statement { xmax, running, ended: self.ended, answer: None });
    }

    fn ask(&mut self, number: usize, less: i64) -> Result<(), TestCaseError> {
        let statement = &mut self.statements[number];
        let counts = [statement.running.iter().min().copied().unwrap_or(0), statement.running.len() as u32];
        let running = if self.by_counts { &counts[..] } else { &statement.running };
        let own = self.processes[SELF].filter(|xid| u64::from(*xid) < statement.xmax && self.knows_itself);
        let asking = Asking { transaction: self.transaction, xmax: statement.xmax, running, own };
        let answer = match self.session.find(&asking) {
            Ok(Some(id)) => id,
            Ok(None) => {
                self.asked += 1;
                let answer = self.session.give(&asking, statement.ended - less);
                let earlier = self.answers.iter().filter(|(ended, _)| *ended <= statement.ended);
                let greatest = earlier.map(|(_, answer)| *answer).max();
                prop_assert!(self.by_counts || greatest <= Some(answer), "{greatest:?} falls to {answer}");
                self.answers.push((statement.ended, answer));
                answer
            }
            Err(Forgotten) => {
                self.refused += 1;
                let ended = statement.ended;
                let is_latest = self.statements.iter().all(|other| other.ended <= ended);
                prop_assert!(self.asked >= MOST && !is_latest, "refused after {} answers", self.asked);
                return Ok(());
            }
        };
        prop_assert!(answer <= statement.ended, "{answer}, but only {} have ended", statement.ended);
        prop_assert!(statement.answer.is_none_or(|before| before == answer), "two answers to one statement");
        statement.answer = Some(answer);
        Ok(())
    }
}

/// Runs histories, and returns what the first one that fails has found, and how often a statement
/// was refused.
fn run(by_counts: bool, knows_itself: bool, cases: u32) -> (Option<String>, usize) {
    let refused = std::cell::Cell::new(0);
    let mut config = config(cases);
    // A history that fails for a lie need not be a short one.
    config.max_shrink_iters = if by_counts || !knows_itself { 0 } else { config.max_shrink_iters };
    let result = TestRunner::new(config).run(&steps(), |steps| {
        let mut world = World::new(by_counts, knows_itself);
        let result = steps.into_iter().try_for_each(|step| world.step(step));
        refused.set(refused.get() + world.refused);
        result
    });
    (result.err().map(|error| error.to_string()), refused.get())
}

#[test]
fn each_statement_has_one_answer_that_is_right_for_its_snapshot_and_never_falls() {
    let (error, refused) = run(false, true, 2000);
    assert_eq!(error, None);
    assert!(refused > 0, "nothing was forgotten");
}

#[test]
fn numbers_of_xids_do_not_tell_snapshots_apart_while_one_is_being_prepared() {
    let (error, _) = run(true, true, 20_000);
    assert!(error.is_some_and(|error| error.contains("have ended")), "no history shows it");
}

#[test]
fn a_session_that_leaves_out_its_own_transaction_takes_a_later_snapshot_for_an_earlier_one() {
    let (error, _) = run(false, false, 20_000);
    assert!(error.is_some_and(|error| error.contains("falls to")), "no history shows it");
}

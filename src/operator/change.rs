//! Performing a change: what it would write, the question before a dangerous one, the change
//! itself, and what is said of it.

use serde_json::{Value as Json, json};
use snowflake_core::fleet::operate::{NotPerformed, Operation, Outcome, Turn};
use snowflake_core::fleet::registry::{Reading, Store};
use snowflake_registry::RegistryError;

use crate::arguments::Changing;
use crate::ask;
use crate::changes::{Changed, Noting, Rehearsal, lines};
use crate::output::Said;
use crate::place::Random;
use crate::report::{Exit, Report, failed};
use crate::words;

/// How often a turn goes on after a call without an answer. It recognizes what it has written.
const TRIES: u32 = 2;

/// A change that is performed for somebody.
pub struct Change<'a, S: ?Sized> {
    /// The command, for messages.
    pub command: &'a str,
    /// The fleet's name.
    pub fleet: &'a str,
    /// The registry.
    pub store: &'a S,
    /// Whether only to show it, and whether to ask.
    pub changing: Changing,
    /// Whether a person is at a terminal.
    pub has_person: bool,
}

impl<S: Store<Error = RegistryError> + ?Sized> Change<'_, S> {
    /// Performs an operation, or shows what it would do.
    ///
    /// # Errors
    /// Why it is not performed.
    pub fn perform(&self, operation: &Operation, random: &mut Random) -> Result<Said, Report> {
        self.perform_with(operation, random, &[])
    }

    /// The same with changes of what no record of the protocol has, which the caller makes
    /// afterwards.
    ///
    /// # Errors
    /// Why it is not performed.
    pub fn perform_with(&self, operation: &Operation, random: &mut Random, more: &[Changed]) -> Result<Said, Report> {
        let danger = danger(operation);
        let may_ask = danger != Danger::Never && !self.changing.dry_run && !self.changing.yes;
        if may_ask && danger == Danger::Always && !self.has_person {
            return Err(ask::without_person(self.command));
        }
        let mut confirmed = None;
        if self.changing.dry_run || may_ask {
            let reading = self.store.read(&operation.wanted());
            let reading = reading.map_err(|error| said_of_change(failed(error), false, false))?;
            let told = self.rehearse(&reading, operation, random)?.with(more);
            if self.changing.dry_run {
                return Ok(told.dry());
            } else if !told.said.is_empty() {
                told.confirm(self.command, self.has_person)?;
                confirmed = Some(reading);
            }
        }
        Ok(self.turn(operation, confirmed.as_ref(), random)?.with(more).done())
    }

    /// Returns what an operation would do after a reading.
    fn rehearse(&self, reading: &Reading, operation: &Operation, random: &mut Random) -> Result<Told, Report> {
        let store = Rehearsal::new(reading.clone());
        let noting = Noting::new(&store);
        match Turn::new(operation.clone()).perform(&noting, &mut || random.next()) {
            Ok(outcome) => Ok(Told::of(&outcome, &noting, self.fleet)),
            Err(NotPerformed::Refused(refusal)) => Err(words::refusal(&refusal, self.fleet)),
            Err(NotPerformed::Away(never)) => match never {},
        }
    }

    /// Performs an operation. `confirmed` is what a person has confirmed it by.
    fn turn(&self, operation: &Operation, confirmed: Option<&Reading>, random: &mut Random) -> Result<Told, Report> {
        let noting = Noting::new(self.store);
        let turn = Turn::new(operation.clone());
        let mut turn = match confirmed {
            Some(reading) => turn.confirmed_at(reading),
            None => turn,
        };
        let (mut tries, mut was_unanswered) = (0, false);
        loop {
            tries += 1;
            match turn.perform(&noting, &mut || random.next()) {
                Ok(outcome) => return Ok(Told::of(&outcome, &noting, self.fleet)),
                Err(NotPerformed::Refused(refusal)) => {
                    let report = words::refusal(&refusal, self.fleet);
                    return Err(self.ended(report, operation, &noting, was_unanswered));
                }
                Err(NotPerformed::Away(error)) => {
                    let report = failed(error);
                    if report.code == Exit::NoAnswer && noting.is_unsure() {
                        was_unanswered = true;
                        if tries < TRIES {
                            continue;
                        }
                    }
                    return Err(self.ended(report, operation, &noting, was_unanswered));
                }
            }
        }
    }

    /// Says what a turn has changed that did not come to its end. `was_unanswered` says whether a
    /// swap of it was sent without an answer.
    fn ended(&self, report: Report, operation: &Operation, noting: &Noting<'_, S>, was_unanswered: bool) -> Report {
        let is_unsure = was_unanswered && noting.is_unsure();
        let report = match report.code {
            // It may hold the lock for which a later one has waited.
            Exit::Refused if is_unsure => report.coded(Exit::NoAnswer),
            _ => report,
        };
        let report = said_of_change(report, is_unsure, noting.has_written());
        // The turn closes it first, so that nothing is leased and no tag is made meanwhile.
        if matches!(operation, Operation::ResetSettings | Operation::Lost { .. }) && noting.has_closed() {
            return with_sentence(
                report,
                &format!(
                    "Fleet \"{}\" is closed now, so that servers renew nothing. To open it again, run {}.",
                    self.fleet,
                    words::command("open --not-moved")
                ),
            );
        }
        report
    }
}

/// Of a call that was rolled back, and of one that was not answered.
const NOTHING: &str = "Nothing was changed.";
const MAYBE: &str = "The change may have been made all the same, or may still be made.";

/// Says what was changed, or may have been, when a change failed. A registry that has refused a
/// call has not done it, but it may have done one before.
pub fn said_of_change(report: Report, is_unsure: bool, has_written: bool) -> Report {
    let is_unanswered = report.code == Exit::NoAnswer;
    let what = match (has_written, is_unsure && is_unanswered) {
        (false, false) if is_unanswered => NOTHING,
        (false, false) => return report,
        (false, true) => MAYBE,
        (true, false) => "A part of the change was made.",
        (true, true) => "A part of the change was made, and the rest may have been made.",
    };
    with_sentence(report, what)
}

/// Appends a sentence to the detail, unless it is there. What was said of one call, and not of the
/// whole, is left out.
fn with_sentence(report: Report, sentence: &str) -> Report {
    let detail = match report.detail.filter(|detail| ![NOTHING, MAYBE].contains(&detail.as_str())) {
        Some(detail) if detail.contains(sentence) => detail,
        Some(detail) if detail.ends_with(['.', '!', '?']) => format!("{detail} {sentence}"),
        Some(detail) => format!("{detail}. {sentence}"),
        None => sentence.to_owned(),
    };
    Report { detail: Some(detail), ..report }
}

/// When a person has to confirm an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Danger {
    /// At no time.
    Never,
    /// If it has a consequence, which depends on the fleet.
    Sometimes,
    /// At each time.
    Always,
}

fn danger(operation: &Operation) -> Danger {
    match operation {
        Operation::Restored { .. }
        | Operation::Lost { .. }
        | Operation::Open { moved: Some(_) }
        | Operation::ResetSettings
        | Operation::SetLosesNothing { loses_nothing: true }
        | Operation::DropTag { .. }
        | Operation::Reserve { force: true, .. }
        | Operation::SetTag { next: Some(_), .. } => Danger::Always,
        Operation::SetRange { .. } | Operation::SetLimits { .. } => Danger::Sometimes,
        Operation::SetLease { .. }
        | Operation::SetLosesNothing { loses_nothing: false }
        | Operation::Close
        | Operation::Open { moved: None }
        | Operation::Reserve { force: false, .. }
        | Operation::DropNumbers { .. }
        | Operation::CreateTag { .. }
        | Operation::SetTag { next: None, .. } => Danger::Never,
    }
}

/// What a dry run says first.
pub const NO_CHANGE: &str = "Nothing was changed, because of --dry-run.";

/// What a change does: each value, and what the values do not show.
#[derive(Debug, Default)]
pub struct Told {
    pub changes: Vec<Changed>,
    pub said: Vec<String>,
}

impl Told {
    fn of<S: Store + ?Sized>(outcome: &Outcome, noting: &Noting<'_, S>, fleet: &str) -> Self {
        let mut changes = noting.changes(fleet);
        // There may be many records, and the sentence counts them.
        if matches!(outcome, Outcome::NumbersDropped { .. }) {
            changes.retain(|changed| changed.record.starts_with("fleet "));
        }
        Self { changes, said: words::consequence(outcome, noting.fleet_before().as_ref()) }
    }

    fn with(mut self, more: &[Changed]) -> Self {
        self.changes.extend_from_slice(more);
        self
    }

    fn lines(&self, if_none: &str) -> Vec<String> {
        let lines = [lines(&self.changes), self.said.clone()].concat();
        if lines.is_empty() { vec![if_none.to_owned()] } else { lines }
    }

    fn would_change(&self) -> Vec<String> {
        [vec!["This would change:".to_owned()], self.lines("No value.")].concat()
    }

    /// Returns what `--json` shows of a change in each case.
    pub fn json(&self, is_dry: bool) -> Json {
        let changes: Vec<_> = self.changes.iter().map(Changed::json).collect();
        json!({"done": !is_dry, "dry_run": is_dry, "said": self.said, "changes": changes})
    }

    /// Says what a change would do.
    pub fn dry(&self) -> Said {
        Said::new([vec![NO_CHANGE.to_owned()], self.would_change()].concat(), self.json(true))
    }

    /// Says what a change has done.
    pub fn done(&self) -> Said {
        Said::new(self.lines("No value has changed."), self.json(false))
    }

    /// Asks the person at the terminal.
    ///
    /// # Errors
    /// There is no person, or the answer is not "yes".
    pub fn confirm(&self, command: &str, has_person: bool) -> Result<(), Report> {
        if !has_person {
            return Err(ask::without_person(command));
        }
        ask::confirm(&self.would_change())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::time::Duration;

    use snowflake_core::fleet::registry::{Fleet, RecordChange as Pending, Swap, SwapAnswer, Wanted};
    use snowflake_core::fleet::tag::Tag;
    use snowflake_registry::RegistryStep;
    use snowflake_registry::error::Diagnostic;

    use super::*;
    use crate::report::refused;
    use crate::samples::reading;

    /// A registry that may lose its answers.
    struct Losing {
        store: Rehearsal,
        swaps: RefCell<Vec<Swap>>,
        /// How many answers to swaps are lost, and whether such a swap is done.
        lost: Cell<u32>,
        is_done: bool,
    }

    impl Losing {
        fn new(lost: u32, is_done: bool) -> Self {
            Self { store: Rehearsal::new(reading()), swaps: RefCell::default(), lost: Cell::new(lost), is_done }
        }
    }

    impl Store for Losing {
        type Error = RegistryError;

        fn read(&self, wanted: &Wanted) -> Result<Reading, RegistryError> {
            let Ok(reading) = self.store.read(wanted);
            Ok(reading)
        }

        fn swap(&self, swap: &Swap) -> Result<SwapAnswer, RegistryError> {
            self.swaps.borrow_mut().push(swap.clone());
            let lost = self.lost.get();
            if lost == 0 || self.is_done {
                let Ok(answer) = self.store.swap(swap);
                if lost == 0 {
                    return Ok(answer);
                }
            }
            self.lost.set(lost - 1);
            Err(RegistryError::TimedOut { step: RegistryStep::Read, after: Duration::from_secs(1) })
        }
    }

    fn perform(store: &Losing, operation: Operation, changing: Changing) -> Result<Said, Report> {
        let change = Change { command: "it", fleet: "shop", store, changing, has_person: false };
        change.perform(&operation, &mut Random::open().unwrap())
    }

    const RANGE: Operation = Operation::SetRange { first: 100, last: 200 };
    const LIMITS: Operation = Operation::SetLimits { lease_ms: Some(3_600_000), skew_ms: None };
    const NOW: Changing = Changing { dry_run: false, yes: false };
    const DRY: Changing = Changing { dry_run: true, yes: false };
    const YES: Changing = Changing { dry_run: false, yes: true };

    #[test]
    fn a_change_is_made_and_said() {
        let store = Losing::new(0, true);
        let said = perform(&store, RANGE, NOW).unwrap();
        assert_eq!(said.text(), "fleet \"shop\" first_worker: 0 -> 100\nfleet \"shop\" last_worker: 1023 -> 200\n");
        assert_eq!(perform(&store, RANGE, NOW).unwrap().text(), "No value has changed.\n");
        assert_eq!(said.json["done"], true);
        assert_eq!(said.json["changes"][0]["new"], 100);
        assert_eq!(store.swaps.borrow().len(), 2);
    }

    #[test]
    fn a_dry_run_writes_nothing_and_shows_all() {
        let store = Losing::new(0, true);
        let said = perform(&store, LIMITS, DRY).unwrap();
        assert_eq!(store.swaps.borrow().len(), 0);
        let text = said.text();
        assert!(text.starts_with("Nothing was changed, because of --dry-run.\nThis would change:\nfleet \"shop\" "));
        assert!(text.contains("\nfleet \"shop\" longest_ms: 10 mins -> 1 hr\n"), "{text}");
        assert!(text.contains("\nEach freeze lasts 1 hr 2 mins from now on"), "{text}");
        assert_eq!((said.json["done"].clone(), said.json["dry_run"].clone()), (json!(false), json!(true)));
    }

    #[test]
    fn a_dangerous_change_is_not_made_unasked() {
        let store = Losing::new(0, true);
        let tag = Tag::new("invoices").unwrap();
        for operation in [
            LIMITS,
            Operation::Restored { lease_ms: None, skew_ms: None },
            Operation::Open { moved: Some(false) },
            Operation::ResetSettings,
            Operation::SetLosesNothing { loses_nothing: true },
            Operation::DropTag { tag },
            Operation::SetTag { tag, next: Some(5000), least: None, greatest: None, jumps: None },
        ] {
            let report = perform(&store, operation, NOW).unwrap_err();
            assert_eq!(report.code, Exit::Usage, "{report}");
        }
        assert_eq!(store.swaps.borrow().len(), 0);
        perform(&store, LIMITS, YES).unwrap();
        assert_eq!(store.swaps.borrow().len(), 1);
    }

    #[test]
    fn a_refusal_is_worded() {
        let report = perform(&Losing::new(0, true), Operation::SetRange { first: 0, last: 1024 }, NOW).unwrap_err();
        assert_eq!(report.code, Exit::Refused);
        let report = report.to_string();
        assert!(report.starts_with("error: range 0 to 1024 has numbers that the layout does not have\n"), "{report}");
    }

    #[test]
    fn an_answer_that_is_lost_is_looked_for() {
        // It was done, and is found.
        let store = Losing::new(1, true);
        let said = perform(&store, Operation::Restored { lease_ms: None, skew_ms: None }, YES).unwrap();
        assert!(said.text().contains("fleet \"shop\" generation: 3 -> 4\n"), "{}", said.text());
        assert!(said.text().contains("\nA freeze begins: until "), "{}", said.text());
        let Ok(after) = store.store.read(&Wanted::all());
        assert_eq!(after.fleet.generation, 4);
        // It is found without another swap.
        let drop = Operation::DropTag { tag: Tag::new("invoices").unwrap() };
        let said = perform(&Losing::new(1, true), drop, YES).unwrap();
        assert!(said.text().contains("tag \"invoices\" next_value: 4001 -> none\n"), "{}", said.text());
        // Done or not, it says what has changed.
        for is_done in [true, false] {
            let said = perform(&Losing::new(1, is_done), RANGE, NOW).unwrap();
            let changed = "fleet \"shop\" first_worker: 0 -> 100\nfleet \"shop\" last_worker: 1023 -> 200\n";
            assert_eq!(said.text(), changed, "{is_done}");
        }
    }

    #[test]
    fn a_change_without_an_answer_says_that_it_may_be_made() {
        for is_done in [true, false] {
            let report = perform(&Losing::new(9, is_done), RANGE, NOW).unwrap_err();
            assert_eq!(report.code, Exit::NoAnswer);
            assert_eq!(report.detail.unwrap(), "The change may have been made all the same, or may still be made.");
        }
        let away = |is_unsure, has_written| {
            let report = Report::new(Exit::NoAnswer, "no").detail("It is gone");
            said_of_change(report, is_unsure, has_written).detail.unwrap()
        };
        assert_eq!(away(false, false), "It is gone. Nothing was changed.");
        assert_eq!(away(false, true), "It is gone. A part of the change was made.");
        assert_eq!(away(true, true), "It is gone. A part of the change was made, and the rest may have been made.");
        let refused = |detail: Option<&str>| Report { detail: detail.map(str::to_owned), ..refused("no") };
        assert_eq!(said_of_change(refused(None), true, false), refused(None));
        for detail in [None, Some(NOTHING)] {
            let said = said_of_change(refused(detail), true, true);
            assert_eq!(said, refused(Some("A part of the change was made.")));
        }
    }

    /// A registry that does some swaps, and then fails.
    struct Failing {
        store: Rehearsal,
        /// How many swaps it does.
        left: Cell<u32>,
        error: Option<RegistryError>,
    }

    impl Store for Failing {
        type Error = RegistryError;

        fn read(&self, wanted: &Wanted) -> Result<Reading, RegistryError> {
            let Ok(reading) = self.store.read(wanted);
            Ok(reading)
        }

        fn swap(&self, swap: &Swap) -> Result<SwapAnswer, RegistryError> {
            match (self.left.get(), &self.error) {
                (0, Some(error)) => Err(error.clone()),
                (0, None) => Ok(SwapAnswer::Refused),
                (left, _) => {
                    self.left.set(left - 1);
                    let Ok(answer) = self.store.swap(swap);
                    Ok(answer)
                }
            }
        }
    }

    /// A registry that answers each swap with the last of these errors.
    struct Answering(Rehearsal, RefCell<Vec<RegistryError>>);

    impl Store for Answering {
        type Error = RegistryError;

        fn read(&self, wanted: &Wanted) -> Result<Reading, RegistryError> {
            let Ok(reading) = self.0.read(wanted);
            Ok(reading)
        }

        fn swap(&self, _: &Swap) -> Result<SwapAnswer, RegistryError> {
            Err(self.1.borrow_mut().pop().expect("nobody tries again"))
        }
    }

    #[test]
    fn a_change_that_fails_in_the_middle_says_so() {
        let full = Diagnostic { sqlstate: "53100".to_owned(), message: "no space".to_owned(), ..Default::default() };
        let timed_out = RegistryError::TimedOut { step: RegistryStep::Change, after: Duration::from_secs(1) };
        let failed = |left: u32, operation: &Operation, reading: Reading, error: Option<RegistryError>| {
            let store = Failing { store: Rehearsal::new(reading), left: Cell::new(left), error };
            let change = Change { command: "it", fleet: "shop", store: &store, changing: YES, has_person: false };
            change.perform(operation, &mut Random::open().unwrap()).unwrap_err().detail
        };
        let many_tags = || {
            let mut reading = reading();
            let jumping = reading.tags[&Tag::new("parcels").unwrap()];
            let tags = (0..150).map(|number| (Tag::new(&format!("t{number}")).unwrap(), jumping));
            reading.tags.extend(tags);
            reading
        };
        let restored = Operation::Restored { lease_ms: None, skew_ms: None };
        let part = "A part of the change was made.";
        let full = RegistryError::Refused(Box::new(full));
        for error in [full.clone(), RegistryError::ReadOnly, RegistryError::Locked(None)] {
            let said = failed(1, &restored, many_tags(), Some(error.clone())).unwrap();
            assert!(said.ends_with(part) && !said.contains(NOTHING), "{said}");
            let said = failed(0, &restored, many_tags(), Some(error));
            assert!(said.is_none_or(|said| !said.contains(part)));
        }
        let contended = failed(1, &restored, many_tags(), None).unwrap();
        assert!(contended.ends_with(part), "{contended}");
        let timed_out_again = timed_out.clone();
        let unsure = failed(1, &restored, many_tags(), Some(timed_out)).unwrap();
        assert_eq!(unsure, "A part of the change was made, and the rest may have been made.");
        // A commit that waits for a standby keeps the lock for which the next try waits.
        let store =
            Answering(Rehearsal::new(reading()), RefCell::new(vec![RegistryError::Locked(None), timed_out_again]));
        let change = Change { command: "it", fleet: "shop", store: &store, changing: YES, has_person: false };
        let report = change.perform(&RANGE, &mut Random::open().unwrap()).unwrap_err();
        assert_eq!((report.code, report.detail.as_deref()), (Exit::NoAnswer, Some(MAYBE)));
        // It has closed the fleet.
        let unused = || Reading { numbers: Default::default(), tags: Default::default(), ..reading() };
        for operation in [Operation::ResetSettings, Operation::Lost { lease_ms: 60_000, skew_ms: 5000, uuid: None }] {
            let closed = failed(1, &operation, unused(), Some(full.clone())).unwrap();
            assert!(closed.starts_with("A part of the change was made. Fleet \"shop\" is closed now"), "{closed}");
        }
    }

    #[test]
    fn only_a_range_with_more_numbers_has_to_be_confirmed() {
        let with = |range, operation| {
            let store = Losing::new(0, true);
            let fleet = Fleet { range, layout: None, ..reading().fleet };
            store
                .store
                .swap(&Swap { changes: vec![Pending::Fleet(fleet)], ..Swap::after(&reading(), Vec::new()) })
                .unwrap();
            perform(&store, operation, NOW).map_err(|report| report.code).map(drop)
        };
        let set = |first, last| Operation::SetRange { first, last };
        assert_eq!(with(None, set(0, 5)), Ok(()));
        assert_eq!(with(Some((0, 9)), set(0, 9)), Ok(()));
        assert_eq!(with(Some((0, 9)), set(5, 6)), Ok(()));
        assert_eq!(with(Some((5, 9)), set(4, 9)), Err(Exit::Usage));
        assert_eq!(with(Some((5, 9)), set(5, 10)), Err(Exit::Usage));
    }
}

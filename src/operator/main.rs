//! `snowflake-registry`: makes, shows and changes the registry of a fleet, for operators.
//!
//! What is written is the core's decision (`core/fleet/operate.rs`), and it is written by the same
//! compare-and-swap as a server's changes, through the same stores (`src/registry`). This program
//! has the words, the questions and the tables. Each file uses only files that stand below it.
//!
//! ```text
//! main                 which command is run, and what is printed of it
//!   |
//! create               a registry and its fleets are made
//! change               an operation is shown, asked about, performed
//!   |
//! check                whether all is well; check/ has what is found of each thing
//! show                 the fleet as a table
//!   |
//! view                 what the registry holds, as facts for people
//! changes              what a change changes: old and new values
//! words                refusals and consequences
//!   |
//! place                where the registry is, and random numbers
//! arguments            the arguments, and --help
//! ask                  the question before a dangerous change
//! output               what is printed, for people and for programs
//! report               errors and exit status
//! table                columns, and texts that are safe to print
//! instant, span        instants and lengths of time
//! ```

mod arguments;
mod ask;
mod change;
mod changes;
mod check;
mod create;
mod instant;
mod output;
mod place;
mod report;
#[cfg(test)]
mod samples;
mod show;
mod span;
mod table;
mod view;
mod words;

use std::io::{self, IsTerminal, stdout};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use serde_json::{Value as Json, json};
use snowflake_core::fleet::operate::{Operation, Refusal, prunable_before};
use snowflake_core::fleet::registry::{NumberKey, Wanted};
use snowflake_core::fleet::tag::Tag;
use snowflake_registry::{Asker, RegistryError};

use crate::arguments::{Arguments, Changing, Command, Common, TagValues};
use crate::change::{Change, Told};
use crate::changes::Changed;
use crate::check::{ClockHere, Finding, Grade, Seen};
use crate::output::Said;
use crate::place::{Place, Random, Registry, VARIABLE};
use crate::report::{Exit, Report, failed, misused};
use crate::view::View;

/// What a new tag has, as in `registry.sql`.
const NEW_TAG_NEXT: i64 = 1;
const NEW_TAG_STEPS: (u32, u32) = (1000, 1_000_000);

fn main() -> ExitCode {
    let Arguments { common, command } = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return misunderstood(&error),
    };
    let name = command.name();
    let fleet = if let Command::AddFleet { name, .. } = &command { name.clone() } else { common.fleet.clone() };
    let mut session = match Session::new(&common, fleet.clone()) {
        Ok(session) => session,
        Err(report) => return print(&common, name, &fleet, &Said::default(), Err(report)),
    };
    let makes_fleet = matches!(command, Command::Create { .. } | Command::AddFleet { .. } | Command::Lost { .. });
    let (said, ended) = match session.run(command) {
        Ok((said, exit)) => (said, Ok(exit)),
        Err(report) if makes_fleet => (Said::default(), Err(report)),
        Err(report) => (Said::default(), Err(session.with_fleets(report))),
    };
    print(&common, name, &fleet, &said, ended)
}

/// Says what is wrong with the arguments, or what was asked about them.
fn misunderstood(error: &clap::Error) -> ExitCode {
    let wants_json = std::env::args_os().any(|argument| argument == "--json");
    if !error.use_stderr() || !wants_json {
        if let Err(error) = output::is_read(error.print()) {
            return unwritten(&error);
        }
    } else {
        let text = error.to_string();
        let (message, rest) = text.trim_end().split_once('\n').unwrap_or((text.trim_end(), ""));
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let report = misused(message).detail(rest.trim());
        if let Err(error) = output::print(&Said::default().line(None, None, Some(&report))) {
            return unwritten(&error);
        }
    }
    status(if error.use_stderr() { Exit::Usage } else { Exit::Done })
}

/// Says that what a command says could not be written.
fn unwritten(error: &io::Error) -> ExitCode {
    output::print_error(&format!("error: could not write to standard output: {error}"));
    ExitCode::FAILURE
}

fn status(exit: Exit) -> ExitCode {
    ExitCode::from(exit as u8)
}

/// Prints what a command says, and why it is not done. Returns the exit status.
fn print(common: &Common, command: &str, fleet: &str, said: &Said, ended: Result<Exit, Report>) -> ExitCode {
    let (exit, report) = match ended {
        Ok(exit) => (exit, None),
        Err(report) => (report.code, Some(report)),
    };
    let printed = match common.json {
        true => output::print(&said.line(Some(command), Some(fleet), report.as_ref())),
        false => {
            let has_colour =
                stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            let printed = output::print(&if has_colour { output::coloured(&said.text()) } else { said.text() });
            if let Some(report) = report {
                output::print_error(&table::printable_lines(&report.to_string()));
            }
            printed
        }
    };
    match printed {
        // What has failed before says more.
        Err(error) if exit == Exit::Done => unwritten(&error),
        _ => status(exit),
    }
}

/// A registry, for one command.
struct Session {
    place: Place,
    fleet: String,
    registry: Box<Registry>,
    random: Random,
}

impl Session {
    fn new(common: &Common, fleet: String) -> Result<Self, Report> {
        let place = Place::of(common, std::env::var(VARIABLE).ok())?;
        if fleet.is_empty() {
            let report = misused("a fleet needs a name");
            return Err(report.hint("Give the value of \"snowflake_id.fleet\" on its servers."));
        }
        let (registry, random) = (place.registry(&fleet), Random::open()?);
        Ok(Self { place, fleet, registry, random })
    }

    /// Runs a command. Returns what it says, and the exit status.
    fn run(&mut self, command: Command) -> Result<(Said, Exit), Report> {
        let name = command.name();
        let has_person = ask::has_person();
        let said = match command {
            Command::Show { all } => show::show(&self.view()?.0, all),
            Command::Check { strict } => return self.check(strict),
            Command::Create { owner, range, changing } => {
                let range = range.map(|range| (range[0], range[1]));
                create::check_range(range, &self.fleet)?;
                let mut said =
                    create::create(&*self.registry, &self.fleet, owner.as_deref(), changing, &mut self.random)?;
                if let Some((first, last)) = range {
                    let set = if changing.dry_run && self.registry.read(&Wanted::default()).is_err() {
                        create::range_of_new(&self.fleet, first, last)
                    } else {
                        self.perform(name, &Operation::SetRange { first, last }, changing, has_person)
                            .map_err(|report| change::said_of_change(report, true, !changing.dry_run))?
                    };
                    said.add(set);
                }
                said
            }
            Command::AddFleet { changing, .. } => {
                create::add_fleet(&*self.registry, &self.fleet, changing, &mut self.random)?
            }
            Command::Lost { lease, skew, uuid, owner, changing } => {
                let lost = create::Lost { lease_ms: lease.0, skew_ms: skew.0, uuid, owner: owner.as_deref() };
                create::lost(&*self.registry, &self.fleet, &lost, changing, has_person, &mut self.random)?
            }
            Command::Prune { before, changing } => self.prune(before, changing, has_person)?,
            Command::SetTag { tag, values, changing } => self.set_tag(tag, &values, changing, has_person)?,
            Command::CreateTag { tag, values, changing } => {
                let (least, greatest) = NEW_TAG_STEPS;
                let operation = Operation::CreateTag {
                    tag,
                    next: values.next_value.unwrap_or(NEW_TAG_NEXT),
                    steps: (values.least_step.unwrap_or(least), values.greatest_step.unwrap_or(greatest)),
                    jumps: values.jumps.unwrap_or(false),
                };
                let more = values.description.as_ref().map_or(Vec::new(), |new| described(tag, None, new));
                self.perform_described(&operation, (tag, &values), &more, changing, has_person)?
            }
            Command::Reserve { number, until, datacenter, force, changing } => {
                let until_ms = until.ms(self.registry.read(&Wanted::default()).map_err(failed)?.now_ms);
                let number = NumberKey::new(datacenter, number);
                self.perform(name, &Operation::Reserve { number, until_ms, force }, changing, has_person)?
            }
            Command::SetRange { first, last, changing } => {
                self.perform(name, &Operation::SetRange { first, last }, changing, has_person)?
            }
            Command::SetLimits { limits, changing } => {
                let (lease_ms, skew_ms) = (limits.lease.map(|span| span.0), limits.skew.map(|span| span.0));
                self.perform(name, &Operation::SetLimits { lease_ms, skew_ms }, changing, has_person)?
            }
            Command::SetLease { lease, changing } => {
                let (lease_ms, skew_ms) = (lease.lease.map(|span| span.0), lease.skew.map(|span| span.0));
                self.perform(name, &Operation::SetLease { lease_ms, skew_ms }, changing, has_person)?
            }
            Command::SetLosesNothing { loses_nothing, changing } => {
                self.perform(name, &Operation::SetLosesNothing { loses_nothing }, changing, has_person)?
            }
            Command::Restored { limits, changing } => {
                let (lease_ms, skew_ms) = (limits.lease.map(|span| span.0), limits.skew.map(|span| span.0));
                self.perform(name, &Operation::Restored { lease_ms, skew_ms }, changing, has_person)?
            }
            Command::Close { changing } => self.perform(name, &Operation::Close, changing, has_person)?,
            Command::Open { moved, not_moved, changing } => {
                let moved = (moved || not_moved).then_some(moved);
                self.perform(name, &Operation::Open { moved }, changing, has_person)?
            }
            Command::ResetSettings { changing } => {
                self.perform(name, &Operation::ResetSettings, changing, has_person)?
            }
            Command::DropNumbers { changing } => {
                let reading = self.registry.read(&Wanted::default()).map_err(failed)?;
                let before_ms = reading.fleet.over_ms(reading.now_ms);
                self.perform(name, &Operation::DropNumbers { before_ms }, changing, has_person)?
            }
            Command::DropTag { tag, changing } => {
                self.perform(name, &Operation::DropTag { tag }, changing, has_person)?
            }
        };
        Ok((said, Exit::Done))
    }

    /// Adds the names of the registry's fleets to a refusal, if it has none of the one that was
    /// asked for.
    fn with_fleets(&self, report: Report) -> Report {
        if report.code != Exit::Refused {
            return report;
        }
        match self.registry.fleets().as_deref() {
            Ok([]) => report.detail("The registry has no fleet."),
            Ok(fleets) if fleets.contains(&self.fleet) => report,
            Ok([fleet]) => report.detail(format!("The registry has the fleet \"{fleet}\".")),
            Ok(fleets) => report.detail(format!("The registry has the fleets {}.", quoted(fleets))),
            Err(_) => report,
        }
    }

    /// Says that an operation on the whole registry is one on each of its fleets.
    fn name_other_fleets(&self, said: &mut Said) {
        let (line, others) = other_fleets(self.registry.fleets(), &self.fleet);
        said.lines.extend(line);
        said.json.insert("other_fleets".to_owned(), json!(others));
    }

    fn perform(
        &mut self,
        command: &str,
        operation: &Operation,
        changing: Changing,
        has_person: bool,
    ) -> Result<Said, Report> {
        let change = Change { command, fleet: &self.fleet, store: &*self.registry, changing, has_person };
        let mut said = change.perform(operation, &mut self.random)?;
        // A registry is restored and moved as a whole.
        if matches!(operation, Operation::Restored { .. } | Operation::Close | Operation::Open { .. }) {
            self.name_other_fleets(&mut said);
        }
        Ok(said)
    }

    /// Performs an operation on a tag, and describes it.
    fn perform_described(
        &mut self,
        operation: &Operation,
        (tag, values): (Tag, &TagValues),
        more: &[Changed],
        changing: Changing,
        has_person: bool,
    ) -> Result<Said, Report> {
        let command = if matches!(operation, Operation::CreateTag { .. }) { "create-tag" } else { "set-tag" };
        let change = Change { command, fleet: &self.fleet, store: &*self.registry, changing, has_person };
        let said = change.perform_with(operation, &mut self.random, more)?;
        if let Some(description) = values.description.as_ref().filter(|_| !changing.dry_run) {
            self.describe(tag, description, true)?;
        }
        Ok(said)
    }

    fn describe(&self, tag: Tag, description: &str, has_written: bool) -> Result<(), Report> {
        match self.registry.describe_tag(tag, description) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let report = words::refusal(&Refusal::NoSuchTag { tag }, &self.fleet);
                Err(change::said_of_change(report, false, has_written))
            }
            Err(error) => Err(change::said_of_change(failed(error), true, has_written)),
        }
    }

    fn set_tag(&mut self, tag: Tag, values: &TagValues, changing: Changing, has_person: bool) -> Result<Said, Report> {
        let TagValues { next_value, least_step, greatest_step, jumps, description } = values;
        let more = match description {
            Some(new) => described(tag, self.registry.descriptions().map_err(failed)?.remove(&tag), new),
            None => Vec::new(),
        };
        let is_of_record = next_value.is_some() || least_step.is_some() || greatest_step.is_some() || jumps.is_some();
        if let Some(description) = description.as_ref().filter(|_| !is_of_record) {
            if !self.registry.read(&Wanted::tags(vec![tag])).map_err(failed)?.tags.contains_key(&tag) {
                return Err(words::refusal(&Refusal::NoSuchTag { tag }, &self.fleet));
            }
            let told = Told { changes: more, said: Vec::new() };
            if changing.dry_run {
                return Ok(told.dry());
            }
            self.describe(tag, description, false)?;
            return Ok(told.done());
        }
        let operation =
            Operation::SetTag { tag, next: *next_value, least: *least_step, greatest: *greatest_step, jumps: *jumps };
        self.perform_described(&operation, (tag, values), &more, changing, has_person)
    }

    fn prune(&self, before: instant::When, changing: Changing, has_person: bool) -> Result<Said, Report> {
        if !changing.dry_run && !changing.yes && !has_person {
            return Err(ask::without_person("prune"));
        }
        let reading = self.registry.read(&Wanted::default()).map_err(failed)?;
        let before_ms = prunable_before(&reading, before.ms(reading.now_ms))
            .map_err(|refusal| words::refusal(&refusal, &self.fleet))?;
        let lost = format!(
            "Nobody can find any more which server drew an id before {}, unless its lease has ended later. This cannot \
             be undone.",
            instant::Shown(before_ms)
        );
        let mut told = Told { said: vec![lost], ..Told::default() };
        if changing.dry_run {
            return Ok(told.dry());
        } else if !changing.yes {
            told.confirm("prune", has_person)?;
        }
        let pruned =
            self.registry.prune(before_ms).map_err(|error| change::said_of_change(failed(error), true, false))?;
        told.said.insert(0, format!("Leases that were pruned: {pruned}."));
        let mut said = told.done();
        said.json.insert("pruned".to_owned(), json!(pruned));
        Ok(said)
    }

    /// Reads all of the fleet, and compares the clocks.
    fn view(&self) -> Result<(View, ClockHere), Report> {
        let before_ms = now_ms();
        let reading = self.registry.read(&Wanted::all()).map_err(failed)?;
        let after_ms = now_ms();
        let offset_ms = before_ms.midpoint(after_ms).saturating_sub(reading.now_ms);
        let here = ClockHere { offset_ms, error_ms: after_ms.saturating_sub(before_ms).max(0) / 2 + 1 };
        let names = self.registry.names().map_err(failed)?;
        let descriptions = self.registry.descriptions().map_err(failed)?;
        let (kind, address) = (self.place.kind(), self.place.shown());
        Ok((View { fleet: self.fleet.clone(), kind, address, reading, names, descriptions }, here))
    }

    /// Returns how many parts of the fleet's new numbers have been held up for a second, and which
    /// transactions may do that. A server's takes less long.
    fn held_up(&self) -> Option<(usize, Vec<String>)> {
        let look = || Ok::<_, RegistryError>((self.registry.held_parts()?, self.registry.makers()?));
        let (parts, makers) = look().ok()?;
        if parts.is_empty() {
            return None;
        }
        thread::sleep(MADE_WITHIN);
        let (mut held, mut then) = look().ok()?;
        held.retain(|part| parts.contains(part));
        then.retain(|maker| makers.contains(maker));
        (!held.is_empty() && !then.is_empty()).then_some((held.len(), then))
    }

    fn check(&self, is_strict: bool) -> Result<(Said, Exit), Report> {
        let found = match self.view() {
            Ok((view, here)) => {
                // A role that may not look at this may still check the rest.
                let standbys = self.registry.standbys().ok().flatten();
                let alarms = self.registry.alarms().ok();
                let hosts = self.registry.hosts().unwrap_or_default();
                let held_up = self.held_up();
                let role_settings = self.registry.role_settings().unwrap_or_default();
                check::findings(&view, &Seen { here, standbys, alarms, hosts, held_up, role_settings })
            }
            // The arguments are wrong.
            Err(report) if report.code == Exit::Usage => return Err(report),
            Err(report) => {
                let exit = if report.code == Exit::NoAnswer { Exit::NoAnswer } else { Exit::Found };
                return Ok((check::said(&[Finding::unread(&report)]), exit));
            }
        };
        let least = if is_strict { Grade::Warn } else { Grade::Bad };
        let exit = if check::worst(&found) >= least { Exit::Found } else { Exit::Done };
        Ok((check::said(&found), exit))
    }
}

/// How long a server may take to make a number's record.
const MADE_WITHIN: Duration = Duration::from_secs(1);

/// Returns what differs between two descriptions of a tag.
fn described(tag: Tag, old: Option<String>, new: &str) -> Vec<Changed> {
    let text = |text: &str| Some(if text.is_empty() { Json::Null } else { json!(text) });
    let (record, field) = (format!("tag \"{tag}\""), "description".to_owned());
    let changed = Changed { record, field, old: text(&old.unwrap_or_default()), new: text(new) };
    Some(changed).filter(|changed| changed.old != changed.new).into_iter().collect()
}

/// Lists names.
fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

/// Returns which other fleets the registry has, if that can be read, and what to do with them.
fn other_fleets(fleets: Result<Vec<String>, RegistryError>, own: &str) -> (Option<String>, Option<Vec<String>>) {
    let fleets = match fleets {
        Ok(fleets) => fleets,
        Err(error) => {
            let why = error.report_of(Asker::Operator).message;
            let line = format!(
                "The names of other fleets could not be read: {why}. If this registry has others, run this for each of \
                 them, too (--fleet)."
            );
            return (Some(line), None);
        }
    };
    let others: Vec<_> = fleets.into_iter().filter(|fleet| fleet != own).collect();
    let line = (!others.is_empty()).then(|| {
        format!(
            "This registry also has {}: run this for {} (--fleet).",
            quoted(&others),
            if others.len() == 1 { "it, too" } else { "each of them, too" }
        )
    });
    (line, Some(others))
}

/// Returns this machine's clock, in milliseconds since 1970.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_fleets_are_named_and_a_failure_to_read_them_is_said() {
        let names = |names: &[&str]| Ok(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(other_fleets(names(&["a"]), "a"), (None, Some(Vec::new())));
        let (line, others) = other_fleets(names(&["a", "b"]), "a");
        assert_eq!(line.unwrap(), "This registry also has \"b\": run this for it, too (--fleet).");
        assert_eq!(others, Some(vec!["b".to_owned()]));
        let (line, others) = other_fleets(Err(RegistryError::ReadOnly), "a");
        assert!(line.unwrap().starts_with("The names of other fleets could not be read: registry is read-only. "));
        assert_eq!(others, None);
    }
}

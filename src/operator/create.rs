//! Making a registry and its fleets: `create`, `add-fleet`, `lost`.

use snowflake_core::fleet::operate::{Operation, Outcome, Refusal, lost_fleet, new_fleet};
use snowflake_core::fleet::registry::{Fleet, Incarnation, Wanted};
use snowflake_registry::error::Diagnostic;
use snowflake_registry::postgres::REGISTRY_SQL;
use snowflake_registry::{Kind, Problem, RegistryError, record};

use crate::arguments::Changing;
use crate::ask;
use crate::change::{Change, NO_CHANGE, Told, said_of_change};
use crate::changes::{Changed, differences};
use crate::output::Said;
use crate::place::{Random, Registry};
use crate::report::{Report, failed, misused, refused};
use crate::words::{self, command};

/// The fleet that it makes.
const FIRST_FLEET: &str = "default";

/// What `create` has found, or would find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Neither schema nor fleet: PostgreSQL.
    Nothing,
    /// No fleet of this name.
    NoFleet,
    /// The fleet.
    Fleet,
}

fn look(registry: &Registry, is_dry: bool) -> Result<Found, Report> {
    match registry.read(&Wanted::default()) {
        Ok(_) => Ok(Found::Fleet),
        Err(RegistryError::NoSchema) => Ok(Found::Nothing),
        Err(error) if is_no_fleet(&error) => Ok(Found::NoFleet),
        // The file brings what is missing, and says better which version it is for.
        Err(RegistryError::OtherVersion(found)) if is_postgres(registry) && !(is_dry && found.is_some()) => {
            Ok(Found::Fleet)
        }
        Err(error) => Err(failed(error)),
    }
}

fn is_no_fleet(error: &RegistryError) -> bool {
    matches!(error, RegistryError::NoFleet(_) | RegistryError::Etcd(Problem::NoFleet(_)))
}

/// Checks a range before anything is made.
///
/// # Errors
/// It cannot be a range.
pub fn check_range(range: Option<(i64, i64)>, fleet: &str) -> Result<(), Report> {
    let refusal = match range {
        Some((first, _)) if first < 0 => Refusal::RangeBelowZero { first },
        Some((first, last)) if first > last => Refusal::EmptyRange { first, last },
        _ => return Ok(()),
    };
    Err(words::refusal(&refusal, fleet))
}

/// Says which range a fleet would have that is not made yet.
pub fn range_of_new(fleet: &str, first: i64, last: i64) -> Said {
    let mut changes = values(fleet, &Fleet { range: Some((first, last)), ..new_fleet(0, NO_INCARNATION, 0) });
    changes.retain(|changed| ["first_worker", "last_worker"].contains(&changed.field.as_str()));
    Told { changes, said: Vec::new() }.dry()
}

/// Makes the registry and the fleet, or brings the registry up to date.
///
/// # Errors
/// Why it is not done.
pub fn create(
    registry: &Registry,
    fleet: &str,
    owner: Option<&str>,
    changing: Changing,
    random: &mut Random,
) -> Result<Said, Report> {
    let found = look(registry, changing.dry_run)?;
    let is_postgres = is_postgres(registry);
    if !is_postgres && owner.is_some() {
        return Err(misused("etcd has no owner of a registry").hint("Leave --owner out."));
    }
    if changing.dry_run {
        let mut said = Vec::new();
        match (is_postgres, found) {
            (true, Found::Nothing) => said.push(format!(
                "The schema \"snowflake_registry\" would be made for {}, and the fleet \"{FIRST_FLEET}\" in it.",
                owner.map_or_else(|| "the role that connects".to_owned(), |owner| format!("role \"{owner}\""))
            )),
            (true, _) => said.push(
                "The database has a registry already. Its functions, views and triggers would be replaced. Records and \
                 rights would stay."
                    .to_owned(),
            ),
            (false, _) => {}
        }
        said.push(match found {
            Found::Fleet => format!("Fleet \"{fleet}\" exists already, and would stay."),
            Found::Nothing if fleet == FIRST_FLEET => return Ok(outcome(said, Vec::new(), true)),
            Found::Nothing | Found::NoFleet => format!("Fleet \"{fleet}\" would be made."),
        });
        return Ok(outcome(said, Vec::new(), true));
    }
    let (mut said, mut grants) = (Vec::new(), Vec::new());
    if is_postgres {
        let notices = make_schema(registry, owner)?;
        said.extend(notices.iter().map(sentences));
        if found == Found::Nothing {
            grants = role_commands();
        }
    }
    // The file has made the first one.
    if found != Found::Fleet && !(is_postgres && found == Found::Nothing && fleet == FIRST_FLEET) {
        let new = new_fleet(random.uuid(), NO_INCARNATION, random.next());
        // The schema is made by now.
        if make_fleet(registry, &new, is_postgres)? {
            said.push(is_there(fleet));
        }
    } else if found == Found::Fleet {
        said.push(format!("Fleet \"{fleet}\" exists already."));
    }
    if !grants.is_empty() {
        said.push("Then make the servers' role, as a role that may create roles:".to_owned());
    }
    Ok(outcome(said, grants, false))
}

/// Makes another fleet.
///
/// # Errors
/// Why it is not done.
pub fn add_fleet(registry: &Registry, name: &str, changing: Changing, random: &mut Random) -> Result<Said, Report> {
    let exists = || {
        refused(format!("fleet \"{name}\" exists already"))
            .hint(format!("Servers can use it. A registry that was lost needs {}.", command("lost")))
    };
    match registry.read(&Wanted::default()) {
        Ok(_) => return Err(exists()),
        Err(error) if is_no_fleet(&error) => {}
        Err(error) => return Err(failed(error)),
    }
    if changing.dry_run {
        return Ok(outcome(vec![format!("Fleet \"{name}\" would be made.")], Vec::new(), true));
    }
    let new = new_fleet(random.uuid(), NO_INCARNATION, random.next());
    if !make_fleet(registry, &new, false)? {
        return Err(exists());
    }
    Ok(outcome(vec![is_there(name)], Vec::new(), false))
}

/// What `lost` is given.
pub struct Lost<'a> {
    pub lease_ms: i64,
    pub skew_ms: i64,
    pub uuid: Option<u128>,
    pub owner: Option<&'a str>,
}

/// Makes a fleet anew that was lost, beginning with a freeze, and what is missing around it.
///
/// # Errors
/// Why it is not done.
pub fn lost(
    registry: &Registry,
    fleet: &str,
    lost: &Lost<'_>,
    changing: Changing,
    has_person: bool,
    random: &mut Random,
) -> Result<Said, Report> {
    let Lost { lease_ms, skew_ms, uuid, owner } = *lost;
    let forbidden = |refusal: Refusal| words::refusal(&refusal, fleet);
    if !changing.dry_run && !changing.yes && !has_person {
        return Err(ask::without_person("lost"));
    }
    // Checks what was given before anything is made.
    let blank = new_fleet(uuid.unwrap_or_else(|| random.uuid()), NO_INCARNATION, random.next());
    lost_fleet(&blank, 0, lease_ms, skew_ms, 0).map_err(forbidden)?;
    let operation = Operation::Lost { lease_ms, skew_ms, uuid };
    let found = look(registry, changing.dry_run)?;
    if found == Found::Fleet {
        let change = Change { command: "lost", fleet, store: registry, changing, has_person };
        return change.perform(&operation, random);
    }
    let is_new = found == Found::Nothing;
    // What is not made yet has no clock.
    let now_ms = || if is_new { Ok(crate::now_ms()) } else { registry.now().map(|(_, now_ms)| now_ms) };
    let made_anew = |now_ms: i64| lost_fleet(&blank, now_ms, lease_ms, skew_ms, blank.version).map_err(forbidden);
    let schema = is_new.then(|| "The schema \"snowflake_registry\" is made.".to_owned());
    // A uuid that is not given is another one each time.
    let mut told = told_of_lost(fleet, &made_anew(now_ms().map_err(failed)?)?);
    told.changes.retain(|changed| uuid.is_some() || changed.field != "uuid");
    told.said.splice(0..0, schema.clone());
    if changing.dry_run {
        return Ok(told.dry());
    } else if !changing.yes {
        told.confirm("lost", has_person)?;
    }
    let mut grants = Vec::new();
    if is_new {
        make_schema(registry, owner)?;
        grants = role_commands();
    }
    let yes = Changing { yes: true, ..changing };
    let mut said = if is_new && fleet == FIRST_FLEET {
        // The file has made it. No server has a right yet.
        let change = Change { command: "lost", fleet, store: registry, changing: yes, has_person };
        change.perform(&operation, random).map_err(|report| said_of_change(report, false, true))?
    } else {
        // In one step, because servers may reach it at once.
        let (_, now_ms) = registry.now().map_err(|error| said_of_change(failed(error), false, is_new))?;
        let new = made_anew(now_ms)?;
        if !make_fleet(registry, &new, is_new)? {
            let report = refused(format!("fleet \"{fleet}\" was made meanwhile")).hint("Run this again.");
            return Err(said_of_change(report, false, is_new));
        }
        told_of_lost(fleet, &new).done()
    };
    said.lines.splice(0..0, schema);
    if !grants.is_empty() {
        said.lines.push("Set the range and make the tags. Last of all, make the servers' role:".to_owned());
        said.lines.extend(grants);
    }
    Ok(said)
}

/// Says what making a fleet anew changes.
fn told_of_lost(fleet: &str, new: &Fleet) -> Told {
    let Fleet { generation, freeze_ms, uuid, closed: is_closed, .. } = *new;
    let outcome = Outcome::Lost { generation, freeze_ms, uuid, is_closed };
    Told { changes: values(fleet, new), said: words::consequence(&outcome, None) }
}

/// Returns the values of a fleet that is made, but those that the registry itself knows.
fn values(fleet: &str, new: &Fleet) -> Vec<Changed> {
    let mut changes = differences(&format!("fleet \"{fleet}\""), None, Some(record::fleet(new)));
    changes.retain(|changed| !["store", "timeline", "term", "unseen"].contains(&changed.field.as_str()));
    changes
}

/// The registry writes its own into a fleet that is made.
const NO_INCARNATION: Incarnation = Incarnation { store: 0, timeline: 0, counts: [0; 2] };

fn is_postgres(registry: &Registry) -> bool {
    Kind::of(&registry.config().conninfo) == Kind::Postgres
}

/// Makes a fleet. `has_made` says whether the schema was made before.
fn make_fleet(registry: &Registry, fleet: &Fleet, has_made: bool) -> Result<bool, Report> {
    registry.create_fleet(fleet).map_err(|error| said_of_change(failed(error), true, has_made))
}

fn is_there(fleet: &str) -> String {
    format!("Fleet \"{fleet}\" is there. Its first server brings layout and range.")
}

/// Makes the schema, or brings it up to date.
fn make_schema(registry: &Registry, owner: Option<&str>) -> Result<Vec<Diagnostic>, Report> {
    registry.create(owner).map_err(|error| match error {
        // Also where the schema is there, and another role's.
        RegistryError::NoOperator(message) => refused(format!("role may not make the registry: {message}")).hint(
            "Connect as a role that may create a schema. If the schema is there, connect as its owner, or add \
                 --owner if you trust that role with the registry.",
        ),
        error => said_of_change(failed(error), true, false),
    })
}

/// Returns the commands that make the servers' role, which stand at the head of `registry.sql`.
fn role_commands() -> Vec<String> {
    let head = REGISTRY_SQL.lines().skip_while(|line| !line.contains("CREATE ROLE"));
    let commands = head.map_while(|line| line.strip_prefix("--     "));
    commands.map(|line| format!("    {line}")).collect()
}

/// Turns a notice of PostgreSQL's into sentences.
fn sentences(notice: &Diagnostic) -> String {
    let parts = [Some(&notice.message), notice.detail.as_ref(), notice.hint.as_ref()];
    let sentence = |part: &String| {
        let mut chars = part.chars();
        let begin = chars.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
        let end = if part.ends_with(['.', ';', '!', '?']) { "" } else { "." };
        format!("{begin}{}{end}", chars.as_str())
    };
    parts.into_iter().flatten().map(sentence).collect::<Vec<_>>().join(" ")
}

/// Says what was made.
fn outcome(mut said: Vec<String>, grants: Vec<String>, is_dry: bool) -> Said {
    let mut json = Told { changes: Vec::new(), said: said.clone() }.json(is_dry);
    json["role_commands"] = grants.iter().map(|line| line.trim()).collect();
    if is_dry {
        said.insert(0, NO_CHANGE.to_owned());
    }
    said.extend(grants);
    Said::new(said, json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_for_the_servers_role_are_found() {
        let commands = role_commands().join("\n");
        assert!(commands.starts_with("    CREATE ROLE snowflake LOGIN;\n"), "{commands}");
        assert!(commands.ends_with(" TO snowflake;") && commands.matches("GRANT").count() == 2, "{commands}");
    }

    #[test]
    fn a_notice_becomes_sentences() {
        let notice = Diagnostic {
            message: "role s lacks a right".to_owned(),
            hint: Some("Run: GRANT x TO s;".to_owned()),
            ..Diagnostic::default()
        };
        assert_eq!(sentences(&notice), "Role s lacks a right. Run: GRANT x TO s;");
    }
}

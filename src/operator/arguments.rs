//! The program's arguments, and what `--help` says of each command: when to use it, what it costs,
//! what not to do, and how to undo it.

use clap::{Args, Parser, Subcommand};

use crate::instant::When;
use crate::span::Span;

const AFTER_HELP: &str = "\
Where the registry is:
  --registry 'host=a.example,b.example dbname=ids target_session_attrs=read-write'
  --registry 'service=fleet'
  --registry 'etcd:https://a.example:2379,https://b.example:2379?cacert=/etc/ssl/etcd-ca.pem'
  It has the form of the servers' setting \"snowflake_id.registry\". In PostgreSQL, connect as the
  registry's owner: the servers' role may not change what operators set. A password does not belong
  in an argument, because every user of the machine can see arguments. Put it into .pgpass, into a
  service file or into PGPASSWORD, and for etcd into the file that password_file names.

Every change compares what it has read. If a server has changed something meanwhile, the program
reads and decides again.

Every change prints each value that it changes, as record field: old -> new. --dry-run prints what
would change, and writes nothing. Dangerous changes ask on a terminal. Elsewhere they need --yes.

Exit status:
  0  done, or nothing to do
  1  refused: by a rule, by the registry, or by you when you were asked
  2  wrong usage; a dangerous change without a terminal and without --yes
  3  no answer from the registry; a change may have been made all the same, and the message says so
  4  \"check\" found something that is BAD (with --strict, also WARN)

--json prints one object. Records have the fields that the registry has. Instants are milliseconds
since 1970, lengths of time are milliseconds, and integers beyond 2^53 are texts. What is not known
is null.
  every command       command, fleet, error {message, detail, hint, exit_status} or null
  every change        done, dry_run, said [text], changes [{record, field, old, new}]
  restored, close, open      also other_fleets [name]; create: role_commands [text]; prune: pruned
  show                settings {..}, registry {..}, numbers [{..}], tags [{..}]
  check               findings [{subject, result, message, hint}], worst";

/// Returns the extension's version, which only one file states.
fn version() -> &'static str {
    let line = include_str!("../../Cargo.toml").lines().find_map(|line| line.strip_prefix("version = \""));
    line.and_then(|rest| rest.split('"').next()).unwrap_or_default()
}

/// Makes, shows and changes the registry of a fleet of snowflake_id.
///
/// The registry is in PostgreSQL or in etcd. The commands are the same for both.
#[derive(Debug, Parser)]
#[command(name = "snowflake-registry", version = version(), after_long_help = AFTER_HELP)]
#[command(verbatim_doc_comment, disable_help_subcommand = true, args_override_self = true)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
pub struct Common {
    /// Where the registry is; without this, the environment variable SNOWFLAKE_REGISTRY says it
    #[arg(long, global = true, value_name = "ADDRESS", display_order = 100)]
    pub registry: Option<String>,
    /// The fleet's name, as the servers' setting "snowflake_id.fleet" has it
    #[arg(long, global = true, value_name = "NAME", default_value = "default", display_order = 101)]
    pub fleet: String,
    /// How long connecting to a host, and each request, may take
    #[arg(long, global = true, value_name = "SPAN", default_value = "10 s", value_parser = Span::parse)]
    #[arg(display_order = 102)]
    pub timeout: Span,
    /// Prints JSON, errors as well
    #[arg(long, global = true, display_order = 103)]
    pub json: bool,
}

/// What every change takes.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Changing {
    /// Shows what would change, and writes nothing
    #[arg(long, display_order = 90)]
    pub dry_run: bool,
    /// Does not ask
    #[arg(long, short, display_order = 91)]
    pub yes: bool,
}

/// A lease and a clock skew, one of which may be left out.
#[derive(Debug, Clone, Copy, Args)]
#[group(required = true, multiple = true)]
pub struct LeaseOrSkew {
    /// How long a lease is, from 1 s to 30 d
    #[arg(long, value_name = "SPAN", value_parser = Span::parse)]
    pub lease: Option<Span>,
    /// How far clocks may be apart, from 10 ms to 1 h
    #[arg(long, value_name = "SPAN", value_parser = Span::parse)]
    pub skew: Option<Span>,
}

/// Greatest limits that were set for the fleet.
#[derive(Debug, Clone, Copy, Args)]
pub struct KnownLimits {
    /// The longest lease that was set with "set-limits", if what was restored may not know it
    #[arg(long, value_name = "SPAN", value_parser = Span::parse)]
    pub lease: Option<Span>,
    /// The greatest clock skew that was set with "set-limits", if what was restored may not know it
    #[arg(long, value_name = "SPAN", value_parser = Span::parse)]
    pub skew: Option<Span>,
}

/// What an operator sets in a tag's record.
#[derive(Debug, Clone, Args)]
pub struct TagValues {
    /// First value of the next block; can be raised, and not lowered
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    pub next_value: Option<i64>,
    /// Fewest values of a block, from 1 to 10000000 [new tag: 1000]
    #[arg(long, value_name = "COUNT")]
    pub least_step: Option<u32>,
    /// Most values of a block, up to 10000000 [new tag: 1000000]
    #[arg(long, value_name = "COUNT")]
    pub greatest_step: Option<u32>,
    /// Whether the tag jumps ahead by 1000000000 when the registry may have lost blocks; with
    /// "false", it stops then [new tag: false]
    #[arg(long, value_name = "BOOLEAN", verbatim_doc_comment)]
    pub jumps: Option<bool>,
    /// What the values are for
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
}

fn parse_tag(text: &str) -> Result<snowflake_core::fleet::tag::Tag, String> {
    snowflake_core::fleet::tag::Tag::new(text).map_err(|error| error.to_string())
}

fn parse_uuid(text: &str) -> Result<u128, String> {
    uuid::Uuid::try_parse(text).map(|uuid| uuid.as_u128()).map_err(|_| {
        format!(
            "\"{text}\" is not a uuid; write it as 1b4e28ba-2fa1-41d2-883f-0016d3cca427, which snowflake_lease shows"
        )
    })
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Makes the registry and a fleet in it, or brings an existing registry up to date
    ///
    /// In PostgreSQL, it makes the schema "snowflake_registry" in the database of --registry, as
    /// the role that connects, or for --owner. It needs a role that may create a schema, PostgreSQL
    /// 13 or later, and "fsync" on; nothing is preloaded. The servers need a role of their own: the
    /// command prints the CREATE ROLE and GRANT commands that are left to do.
    ///
    /// Run it again with each new version of snowflake_id, before the servers have that version. It
    /// replaces functions, views and triggers. Records and rights stay. A superuser has to name the
    /// schema's owner then, because another role may have made the schema as a trap.
    ///
    /// In etcd, it makes the fleet's key.
    ///
    /// Do not use it for a registry that was lost: see "lost".
    /// To undo it: DROP SCHEMA snowflake_registry CASCADE, while no server names the registry.
    #[command(verbatim_doc_comment)]
    Create {
        /// The role to which the schema belongs [default: the role that connects]
        #[arg(long, value_name = "ROLE")]
        owner: Option<String>,
        /// The first and the last number that may be leased [default: all of the first server's
        /// layout]
        #[arg(long, num_args = 2, value_names = ["FIRST", "LAST"], allow_negative_numbers = true)]
        range: Option<Vec<i64>>,
        #[command(flatten)]
        changing: Changing,
    },

    /// Makes another fleet, whose servers lease numbers of their own
    ///
    /// Servers name it in "snowflake_id.fleet". Its first server brings layout and range. Ids of
    /// two fleets can be equal.
    #[command(verbatim_doc_comment)]
    AddFleet {
        /// The new fleet's name
        name: String,
        #[command(flatten)]
        changing: Changing,
    },

    /// Shows the fleet: its settings, who holds which number, and its tags
    ///
    /// States of a number:
    ///   held       a server draws ids with it
    ///   ahead      leased, for ids of a later time, as at the end of a freeze
    ///   reserved   kept from being leased ("reserve")
    ///   frozen     free after the freeze
    ///   free       can be leased
    /// LATE: its server has not renewed it for four times as long as it should. It was killed, or
    /// cannot reach the registry. LEFT: the same, and its server has started again, with another
    /// number. OUTSIDE: the range was set without the number since.
    ///
    /// It changes nothing. Free numbers are only counted, unless --all is given.
    #[command(verbatim_doc_comment)]
    Show {
        /// Also shows the numbers that are free
        #[arg(long)]
        all: bool,
    },

    /// Says whether all is well: one line for each thing, and what to do about it
    ///
    /// It looks at the registry (whether it answers, is a primary, writes through to its disk, and
    /// has the right version), at clocks, limits, leases, free numbers, freezes, tags, versions and
    /// synchronous replication. It changes nothing. Run it before and after a change, and from
    /// cron.
    ///
    /// Exit status 4 if anything is BAD.
    #[command(verbatim_doc_comment)]
    Check {
        /// Exit status 4 also for WARN
        #[arg(long)]
        strict: bool,
    },

    /// Sets which numbers may be leased
    ///
    /// Numbers that are configured on servers must lie outside of the range. Leave some numbers out
    /// for good: they are the way out when the registry cannot be reached.
    ///
    /// A server that holds a number outside of the new range keeps it for as long as it runs.
    /// Restart it, and wait until the lease has ended, before you configure that number elsewhere.
    /// To undo it, set the old range again. Before you add a number that was configured on a
    /// server, "reserve" it.
    #[command(verbatim_doc_comment)]
    SetRange {
        /// The first number
        #[arg(allow_hyphen_values = true)]
        first: i64,
        /// The last number
        #[arg(allow_hyphen_values = true)]
        last: i64,
        #[command(flatten)]
        changing: Changing,
    },

    /// Raises how long a lease may be, and how far clocks may be apart
    ///
    /// It cannot be undone. Each freeze lasts for the longest lease and two clock skews: after a
    /// failover that may lose leases, for so long no server that is restarted generates ids.
    ///
    /// It changes no lease. Wait until all standbys of the registry have replayed it, and then use
    /// the new limits with "set-lease". Otherwise a failover could lose a longer lease together
    /// with its limit. Before the first server starts, limits can also be less than the defaults
    /// (10 min and 1 min).
    #[command(verbatim_doc_comment)]
    SetLimits {
        #[command(flatten)]
        limits: LeaseOrSkew,
        #[command(flatten)]
        changing: Changing,
    },

    /// Sets how long leases are, and how far clocks may be apart, up to the limits
    ///
    /// Servers use it from their next renewal on, within ten seconds. A longer lease bridges a
    /// longer outage of the registry; a killed server's number stays leased for as long. A lease
    /// should be several times as long as two clock skews. In etcd, whose clock is known to half a
    /// second, the clock skew should be several seconds. To undo it, set the old values again.
    #[command(verbatim_doc_comment)]
    SetLease {
        #[command(flatten)]
        lease: LeaseOrSkew,
        #[command(flatten)]
        changing: Changing,
    },

    /// Declares that a failover of the registry loses nothing, or no longer
    ///
    /// With "true", a failover begins no freeze. Give it only if every failover promotes a standby
    /// that is synchronous (synchronous_standby_names). If it is wrong, two servers can lease one
    /// number, and ids repeat. Set it to "false" before you restore the registry, and before
    /// replication becomes asynchronous. A failover of etcd loses nothing, so etcd does not need
    /// it.
    #[command(verbatim_doc_comment)]
    SetLosesNothing {
        /// "true" or "false"
        #[arg(value_name = "BOOLEAN", action = clap::ArgAction::Set)]
        loses_nothing: bool,
        #[command(flatten)]
        changing: Changing,
    },

    /// Keeps a number that was configured on a server from being leased before an instant
    ///
    /// For the change from configured to leased numbers: before you add the number to the range.
    /// The instant is the highest mark of all databases of each server that had the number. Ids of
    /// later times may carry the number again.
    ///
    /// It cannot be undone. An instant more than 30 days from now needs --force: check the mark
    /// that it comes from. To keep a number for good, leave it out of the range ("set-range").
    #[command(verbatim_doc_comment)]
    Reserve {
        /// The number
        #[arg(allow_hyphen_values = true)]
        number: i64,
        /// Until when, such as '2026-11-24 12:00+00'
        #[arg(value_parser = When::parse)]
        until: When,
        /// The datacenter number, in a layout with that field
        #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
        datacenter: Option<i64>,
        /// Permits an instant more than 30 days from now
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        changing: Changing,
    },

    /// Says that the registry was restored from a backup, a snapshot or a dump
    ///
    /// Run it before the first server reaches the restored registry. Keep servers away from it
    /// until then, and compare its clock with a right one first. Servers cannot detect that copied
    /// files lack leases. By renewing, they would show only two thirds of what is forgotten.
    ///
    /// A generation begins: no number is leased anew until all leases that may be lost have ended
    /// (a freeze: 12 minutes by default). Servers generate ids until their leases end. Restart none
    /// of them before the end of the freeze. Tags that jump go ahead, by one more jump for each
    /// second since they were written: --dry-run shows how far. Others stop, until you set their
    /// next value.
    ///
    /// Do not run it after a failover, which servers detect: it would begin a second freeze. If
    /// limits were raised after the backup, give the raised ones. It cannot be undone.
    #[command(verbatim_doc_comment)]
    Restored {
        #[command(flatten)]
        limits: KnownLimits,
        #[command(flatten)]
        changing: Changing,
    },

    /// Makes the registry again after it was lost for good, beginning with a freeze
    ///
    /// For a registry of which neither a standby nor a backup is left. It makes what is missing
    /// (in PostgreSQL the schema, in both the fleet), and leases no number before all lost leases
    /// have ended. Restart no server before: each generates ids until its lease ends.
    ///
    /// Give the longest lease and the greatest clock skew that the lost registry permitted, and the
    /// lost fleet's uuid. Every server shows it in the column "fleet" of snowflake_lease. Without
    /// it, servers take this for another fleet, and refuse to draw.
    ///
    /// Then set the range as it was, make each tag again with a --next-value above all values that
    /// servers have had, and only then give the servers' role its rights. It cannot be undone.
    ///
    /// A fleet that is there is closed first, so that nobody makes a tag meanwhile. If the program
    /// is interrupted, it stays closed: run "lost" again, and then "open --not-moved".
    #[command(verbatim_doc_comment)]
    Lost {
        /// The longest lease of the lost registry: 10 min, unless "set-limits" has raised it
        #[arg(long, value_name = "SPAN", value_parser = Span::parse)]
        lease: Span,
        /// The greatest clock skew of the lost registry: 1 min, unless "set-limits" has raised it
        #[arg(long, value_name = "SPAN", value_parser = Span::parse)]
        skew: Span,
        /// The lost fleet's uuid
        #[arg(long, value_parser = parse_uuid)]
        uuid: Option<u128>,
        /// The role to which the schema belongs, if it is made [default: the role that connects]
        #[arg(long, value_name = "ROLE")]
        owner: Option<String>,
        #[command(flatten)]
        changing: Changing,
    },

    /// Closes the fleet, to move its registry: nothing is leased or renewed
    ///
    /// Servers generate ids until their leases end, ten minutes by default. Finish the move within
    /// that time, and restart no server meanwhile.
    ///
    /// Then copy the registry, correct "snowflake_id.registry" on all servers, and run "open
    /// --moved" in the registry that was moved to. The old one stays closed. To give the move up,
    /// run "open --not-moved" in the old one.
    #[command(verbatim_doc_comment)]
    Close {
        #[command(flatten)]
        changing: Changing,
    },

    /// Opens the fleet again after "close"
    ///
    /// --moved says that this is the closed registry, moved whole, so that nothing was lost and
    /// nothing is frozen. --not-moved gives the move up, in the old registry. Use it only if no
    /// server has reached an opened copy. Otherwise both lease the same numbers, and ids repeat.
    /// To undo it, "close" again.
    #[command(verbatim_doc_comment)]
    Open {
        /// This is the closed registry, moved whole
        #[arg(long, conflicts_with = "not_moved")]
        moved: bool,
        /// The move is given up, and no server has reached an opened copy
        #[arg(long)]
        not_moved: bool,
        #[command(flatten)]
        changing: Changing,
    },

    /// Removes what the first server has brought, if it was wrong
    ///
    /// Layout and "backup_worker" are forgotten, the range if it was all of the layout, limits, and
    /// what "set-lease" has set. The next server brings its own.
    ///
    /// Stop all servers of the fleet cleanly first. It is refused until their leases, and twice the
    /// clock skew, are over. A database in which the wrong server has drawn ids keeps their layout:
    /// create it again.
    #[command(verbatim_doc_comment)]
    ResetSettings {
        #[command(flatten)]
        changing: Changing,
    },

    /// Makes a tag: a space of dense values
    ///
    /// Servers draw from it with snowflake_segment_next(). Its values begin at 1, unless
    /// --next-value says otherwise: give more than every value that exists, if the tag was there
    /// before.
    #[command(verbatim_doc_comment)]
    CreateTag {
        /// The tag's name, 1 to 63 bytes; case-sensitive
        #[arg(value_parser = parse_tag)]
        tag: snowflake_core::fleet::tag::Tag,
        #[command(flatten)]
        values: TagValues,
        #[command(flatten)]
        changing: Changing,
    },

    /// Changes a tag
    ///
    /// To let a tag that has stopped go on, set --next-value above all values that servers have
    /// had: wait for half a minute, so that running servers tell theirs, and look for the greatest
    /// value of the others in what took over, a standby or a backup. A next value that is too low
    /// gives values twice, and no error reports it. Servers draw the rest of their blocks first.
    ///
    /// Where numbers need not be short, --jumps true lets the tag go on without you.
    #[command(verbatim_doc_comment)]
    SetTag {
        /// The tag's name
        #[arg(value_parser = parse_tag)]
        tag: snowflake_core::fleet::tag::Tag,
        #[command(flatten)]
        values: TagValues,
        #[command(flatten)]
        changing: Changing,
    },

    /// Deletes a tag
    ///
    /// Servers draw the rest of their blocks for up to 20 seconds, then draws fail. It cannot be
    /// undone: a tag that is made again begins anew, so give it a --next-value well above all
    /// values that exist.
    #[command(verbatim_doc_comment)]
    DropTag {
        /// The tag's name
        #[arg(value_parser = parse_tag)]
        tag: snowflake_core::fleet::tag::Tag,
        #[command(flatten)]
        changing: Changing,
    },

    /// Deletes the records of numbers whose leases are over
    ///
    /// Use it when a thief of the servers' password has leased numbers that no server uses, or when
    /// check names servers that are gone for good. Numbers without a record are leased as if they
    /// had never been, and only for ids after the last deleted lease. Leases that have ended within
    /// two clock skews stay. It cannot be undone, and the history stays.
    #[command(verbatim_doc_comment)]
    DropNumbers {
        #[command(flatten)]
        changing: Changing,
    },

    /// Deletes the history of leases that ended before an instant
    ///
    /// Afterwards, drawn_by() does not find which server drew ids of that time. What is leased does
    /// not depend on it. Each number keeps its last lease. It cannot be undone.
    #[command(verbatim_doc_comment)]
    Prune {
        /// Before when, such as '730 days ago'
        #[arg(value_parser = When::parse)]
        before: When,
        #[command(flatten)]
        changing: Changing,
    },
}

impl Command {
    /// Returns the command's name, as it is typed.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::AddFleet { .. } => "add-fleet",
            Self::Show { .. } => "show",
            Self::Check { .. } => "check",
            Self::SetRange { .. } => "set-range",
            Self::SetLimits { .. } => "set-limits",
            Self::SetLease { .. } => "set-lease",
            Self::SetLosesNothing { .. } => "set-loses-nothing",
            Self::Reserve { .. } => "reserve",
            Self::Restored { .. } => "restored",
            Self::Lost { .. } => "lost",
            Self::Close { .. } => "close",
            Self::Open { .. } => "open",
            Self::ResetSettings { .. } => "reset-settings",
            Self::CreateTag { .. } => "create-tag",
            Self::SetTag { .. } => "set-tag",
            Self::DropTag { .. } => "drop-tag",
            Self::DropNumbers { .. } => "drop-numbers",
            Self::Prune { .. } => "prune",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(words: &str) -> Result<Command, String> {
        let arguments = Arguments::try_parse_from(["snowflake-registry"].into_iter().chain(words.split(' ')));
        arguments.map(|arguments| arguments.command).map_err(|error| error.to_string())
    }

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_has_its_name_and_a_help_that_fits_a_screen() {
        for command in Arguments::command().get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            // What it does, and when, what it costs, or how to undo it.
            assert!(command.get_long_about().is_some(), "{}", command.get_name());
            for line in help.lines() {
                assert!(line.chars().count() <= 110 && !line.contains("**"), "{line}");
            }
        }
        for (words, name) in [("close", "close"), ("set-loses-nothing false", "set-loses-nothing"), ("open", "open")] {
            assert_eq!(parse(words).unwrap().name(), name);
        }
        let names: Vec<_> =
            Arguments::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
        assert_eq!(names.len(), 19, "{names:?}");
    }

    #[test]
    fn the_version_is_the_extensions() {
        let parts: Vec<_> = version().split(['.', '-']).collect();
        assert!(parts.len() >= 3 && parts[..3].iter().all(|part| part.parse::<u32>().is_ok()), "{}", version());
    }

    #[test]
    fn options_may_stand_anywhere() {
        for words in ["--fleet shop --json close --yes", "close --yes --json --fleet default --fleet shop --yes"] {
            let arguments = Arguments::try_parse_from(["x"].into_iter().chain(words.split(' '))).unwrap();
            assert!(arguments.common.json && arguments.common.fleet == "shop");
            assert!(matches!(arguments.command, Command::Close { changing: Changing { yes: true, dry_run: false } }));
        }
    }

    #[test]
    fn wrong_values_are_refused_with_their_form() {
        for (words, why) in [
            ("set-lease --lease 10", "is not a length of time from 0 s to a thousand years; write it as"),
            ("set-lease", "--lease"),
            ("set-limits", "--skew"),
            ("set-range 5", "<LAST>"),
            ("set-range a b", "invalid value 'a'"),
            ("reserve 5 tomorrow", "is not an instant with its zone; write it as"),
            ("lost --lease 10min --skew 1min --uuid 5", "is not a uuid; write it as"),
            ("lost --lease 10min", "--skew"),
            ("create-tag x --jumps 5", "invalid value '5'"),
            ("open --moved --not-moved", "cannot be used with"),
            ("set-loses-nothing", "<BOOLEAN>"),
            ("set-tag", "<TAG>"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(why), "{words}: {error}");
        }
        let long = format!("create-tag {}", "x".repeat(64));
        assert!(parse(&long).unwrap_err().contains("tag has 64 bytes, but can have 63 at most"));
    }

    #[test]
    fn negative_numbers_are_values() {
        let Command::SetRange { first, last, .. } = parse("set-range -1 5").unwrap() else { panic!() };
        assert_eq!((first, last), (-1, 5));
        let Command::CreateTag { values, .. } = parse("create-tag x --next-value -5 --jumps false").unwrap() else {
            panic!()
        };
        assert_eq!((values.next_value, values.jumps), (Some(-5), Some(false)));
    }
}

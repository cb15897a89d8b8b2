//! Where the registry is, and how the program reaches it.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use snowflake_registry::{
    Config, Interest, Kind, MemberName, Stopped, Waiter, check_address, has_password, open, shown_address,
};

use crate::arguments::Common;
use crate::report::{Report, misused, refused};

/// The environment variable that takes the place of `--registry`.
pub const VARIABLE: &str = "SNOWFLAKE_REGISTRY";

/// The longest that a step may take: a day.
const LONGEST_MS: i64 = 86_400_000;

/// Waits with `poll`. Ctrl-C ends the program.
pub struct Poll;

impl Waiter for Poll {
    fn wait(&self, socket: BorrowedFd<'_>, interest: Interest, timeout: Duration) -> Result<bool, Stopped> {
        let flags = match interest {
            Interest::Read => PollFlags::POLLIN,
            Interest::Write => PollFlags::POLLOUT,
            Interest::ReadOrWrite => PollFlags::POLLIN | PollFlags::POLLOUT,
        };
        // Rounded up, because a timeout of 0 would not wait at all.
        let timeout = PollTimeout::try_from(timeout.as_millis() + 1).unwrap_or(PollTimeout::MAX);
        Ok(poll(&mut [PollFd::new(socket, flags)], timeout).is_ok_and(|ready| ready > 0))
    }
}

/// A registry of a fleet, as an operator reaches it.
pub type Registry = dyn snowflake_registry::Registry;

/// Where the registry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// As libpq, or the connection to etcd, takes it. It may hold a password, from the environment.
    address: String,
    timeout: Duration,
}

impl Place {
    /// Takes it from the arguments, or from the environment.
    ///
    /// # Errors
    /// Wrong usage: it is missing or wrong, or it has a password and stands in an argument.
    pub fn of(common: &Common, variable: Option<String>) -> Result<Self, Report> {
        let ms = common.timeout.0;
        if !(1..=LONGEST_MS).contains(&ms) {
            let report = misused(format!("timeout cannot be {}", common.timeout));
            return Err(report.detail("It must be from 1 ms to 1 d.").hint("Give it as '10 s' or '500 ms'."));
        }
        let is_argument = common.registry.is_some();
        let Some(address) = common.registry.clone().or(variable.filter(|address| !address.is_empty())) else {
            return Err(misused("no registry is given").hint(format!(
                "Give --registry, or set the environment variable {VARIABLE}, to what \"snowflake_id.registry\" has on \
                 the servers, with the registry's owner as user."
            )));
        };
        let source = if is_argument { "--registry" } else { VARIABLE };
        if let Err(why) = check_address(&address) {
            return Err(misused(format!("{source} is wrong: {why}")).hint(
                "Write a connection string or URI of libpq's, such as 'host=a.example dbname=ids', and try it with \
                 psql. For etcd, write 'etcd:https://a.example:2379?cacert=/etc/ssl/ca.pem'.",
            ));
        }
        // etcd's form takes no password at all.
        if is_argument && Kind::of(&address) == Kind::Postgres && has_password(&address) {
            return Err(misused("--registry has a password")
                .detail("Every user of this machine can see the arguments of a program.")
                .hint("Change the password, and put the new one into .pgpass, a service file or PGPASSWORD."));
        }
        Ok(Self { address, timeout: Duration::from_millis(ms.unsigned_abs()) })
    }

    /// Returns what the registry is in.
    pub fn kind(&self) -> Kind {
        Kind::of(&self.address)
    }

    /// Returns what of the address may be shown.
    pub fn shown(&self) -> String {
        shown_address(&self.address)
    }

    /// Returns the registry of a fleet, which connects when it is used.
    pub fn registry(&self, fleet: &str) -> Box<Registry> {
        let (conninfo, timeout) = (self.address.clone(), self.timeout);
        // An operator is no member of a fleet.
        let member = MemberName::default();
        open(Config { conninfo, fleet: fleet.to_owned(), member, secret: 0, operator: true, timeout }, Poll)
    }
}

/// Random numbers of the system's, which no other program has.
pub struct Random(());

impl Random {
    /// Opens the system's generator.
    ///
    /// # Errors
    /// The system has none.
    pub fn open() -> Result<Self, Report> {
        let failed = |error| refused(format!("could not read random numbers: {error}"));
        getrandom::u64().map(|_| Self(())).map_err(failed)
    }

    /// Returns the next one.
    pub fn next(&mut self) -> u64 {
        getrandom::u64().expect("what could be read before does not end")
    }

    /// Returns a random uuid (RFC 9562, version 4).
    pub fn uuid(&mut self) -> u128 {
        let random = u128::from(self.next()) << 64 | u128::from(self.next());
        uuid::Builder::from_random_bytes(random.to_be_bytes()).into_uuid().as_u128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Exit;
    use crate::span::Span;

    fn common(registry: Option<&str>) -> Common {
        let registry = registry.map(str::to_owned);
        Common { registry, fleet: "default".to_owned(), timeout: Span(10_000), json: false }
    }

    fn refused(registry: Option<&str>, variable: Option<&str>) -> Report {
        let report = Place::of(&common(registry), variable.map(str::to_owned)).unwrap_err();
        assert_eq!(report.code, Exit::Usage);
        report
    }

    #[test]
    fn the_argument_comes_before_the_environment() {
        let place = |registry, variable: &str| Place::of(&common(registry), Some(variable.to_owned())).unwrap();
        assert_eq!(place(Some("host=a"), "host=b").shown(), "host=a");
        assert_eq!(place(None, "etcd:http://b:2379").kind(), Kind::Etcd);
        assert_eq!(refused(None, None).message, "no registry is given");
        assert_eq!(refused(None, Some("")).message, "no registry is given");
        // libpq then takes all from its own environment.
        assert_eq!(place(Some(""), "host=b").shown(), "");
    }

    #[test]
    fn a_password_in_an_argument_is_refused_and_not_repeated() {
        for address in ["host=a password=s3cret", "postgresql://me:s3cret@a/ids", "host=a sslpassword=s3cret"] {
            let report = refused(Some(address), None);
            assert_eq!(report.message, "--registry has a password");
            assert!(!report.to_string().contains("s3cret"), "{report}");
            let place = Place::of(&common(None), Some(address.to_owned())).unwrap();
            assert!(!place.shown().contains("s3cret"), "{}", place.shown());
        }
    }

    #[test]
    fn a_wrong_address_is_explained_without_its_words() {
        for address in ["hots=s3cret", "etcd:http://a:2379?s3cret", "host=a password=my s3cret"] {
            let report = refused(Some(address), None);
            assert!(report.message.starts_with("--registry is wrong: "), "{report}");
            assert!(!report.to_string().contains("s3cret"), "{report}");
        }
        assert!(refused(None, Some("hots=a")).message.starts_with("SNOWFLAKE_REGISTRY is wrong: "));
    }

    #[test]
    fn a_timeout_has_a_range() {
        let of = |ms| Place::of(&Common { timeout: Span(ms), ..common(Some("host=a")) }, None);
        assert!(of(1).is_ok() && of(LONGEST_MS).is_ok());
        assert!(of(0).is_err() && of(LONGEST_MS + 1).is_err());
    }
}

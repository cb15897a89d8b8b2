//! The program with which operators use a fleet's registry, of either kind. Tests act as operators
//! through nothing else.

use std::env;
use std::path::Path;
use std::process::{Command, Output};

use crate::clock_proxy::ClockProxy;
use crate::etcd::Etcd;
use crate::fleet::Fleet;
use crate::installation::Installation;
use crate::server::Server;

/// The program's name, among those of the installation.
pub const PROGRAM: &str = "snowflake-registry";

/// The environment variable that tells the program where the registry is.
pub const ADDRESS: &str = "SNOWFLAKE_REGISTRY";

/// The commands that ask, or may ask, except where nobody is at a terminal. There they want a word
/// more.
const ASKING: [&str; 10] = [
    "restored",
    "lost",
    "open",
    "reset-settings",
    "set-loses-nothing",
    "set-limits",
    "set-range",
    "set-tag",
    "drop-tag",
    "prune",
];

/// A registry, as operators reach it.
pub trait Operated {
    /// Prepares a run of a program of the installation, whose environment names the registry, with
    /// its owner as user.
    fn for_operator(&self, program: &str) -> Command;

    /// Prepares a run of the operators' program.
    fn operator(&self) -> Command {
        self.for_operator(PROGRAM)
    }

    /// Runs a command, whatever comes of it. It does not ask.
    ///
    /// # Panics
    ///
    /// Panics if there is no such program.
    #[track_caller]
    fn operate_once(&self, arguments: &[&str]) -> Output {
        let mut program = self.operator();
        let asks = arguments.iter().any(|argument| ASKING.contains(argument));
        program.args(arguments).args(asks.then_some("--yes"));
        program.output().unwrap_or_else(|error| panic!("{PROGRAM}: {error}"))
    }

    /// Runs a command, and returns what it says.
    ///
    /// # Errors
    ///
    /// What it says if it fails.
    #[track_caller]
    fn try_operate(&self, arguments: &[&str]) -> Result<String, String> {
        let Output { status, stdout, stderr } = self.operate_once(arguments);
        let said = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program writes UTF-8");
        if status.success() { Ok(said(stdout)) } else { Err(said(stderr)) }
    }

    /// Runs a command, and returns what it says.
    ///
    /// # Panics
    ///
    /// Panics if it fails.
    #[track_caller]
    fn operate(&self, arguments: &[&str]) -> String {
        self.try_operate(arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    }

    /// Runs a command that a rule forbids, and returns what it says.
    ///
    /// # Panics
    ///
    /// Panics unless it is refused.
    #[track_caller]
    fn refuses(&self, arguments: &[&str]) -> String {
        let output = self.operate_once(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).expect("the program writes UTF-8")
    }

    /// Enters commands in a shell, each in a line, as an operator does who says yes. Returns what
    /// they say.
    ///
    /// # Panics
    ///
    /// Panics if one fails.
    #[track_caller]
    fn enter(&self, commands: &str) -> String {
        let programs = Installation::get().program("");
        let path = env::var("PATH").unwrap_or_default();
        // The words of ASKING stand for themselves in a pattern.
        let agrees = format!(
            "{PROGRAM}() {{ for word; do case $word in {}) set -- \"$@\" --yes ;; esac; done; command {PROGRAM} \"$@\"; }}",
            ASKING.join("|")
        );
        let mut shell = self.for_operator("/bin/bash");
        shell.env("PATH", format!("{}:{path}", programs.display())).args(["-ec", &format!("{agrees}\n{commands}")]);
        let output = shell.output().expect("there is a shell");
        assert!(output.status.success(), "{commands}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("the program writes UTF-8").trim_end().to_owned()
    }
}

impl Operated for Server {
    fn for_operator(&self, program: &str) -> Command {
        let mut program = self.client(program);
        program.env(ADDRESS, self.conninfo());
        program
    }
}

impl Operated for Etcd {
    fn for_operator(&self, program: &str) -> Command {
        let mut program = self.program(program);
        program.env(ADDRESS, self.address());
        program
    }
}

/// Operators who see the clock that the proxy tells.
impl Operated for ClockProxy {
    fn for_operator(&self, program: &str) -> Command {
        let mut program = Installation::get().command(program, Path::new("/"));
        program.env(ADDRESS, self.address());
        program
    }
}

impl Operated for Fleet {
    fn for_operator(&self, program: &str) -> Command {
        self.registry.for_operator(program)
    }
}

/// Returns the commands that a block of a page shows, which stand behind `$ `.
///
/// # Panics
///
/// Panics if one of its lines is not a command.
#[must_use]
#[track_caller]
pub fn commands(console: &str) -> String {
    let command = |line: &str| line.strip_prefix("$ ").expect("a page's console shows commands").to_owned();
    console.lines().map(command).collect::<Vec<_>>().join("\n")
}

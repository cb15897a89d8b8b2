//! Programs that use a PostgreSQL client as applications do (`tests/clients`), run against a real
//! server.
//!
//! A [`Program`] is a copy of a directory of `tests/clients`, in a place where it may write. Like
//! an [`Application`]'s programs, it runs as the caller and not as the servers' user, with its own
//! role and database, and over the network. `tests/clients` pins the libraries; `make setup`
//! (`tools/clients`) puts them below `~/.cache`, or installs Debian's packages.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use postgres::{Client, Config, NoTls};

use crate::installation::cache;
use crate::outcome::skip;
use crate::scratch;
use crate::server::{Builder, Server, copy, password, pid_of};

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../clients");

/// The path of Debian's JDBC driver.
const JDBC: &str = "/usr/share/java/postgresql.jar";

/// Some programs are compiled first, perhaps on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A server with what an application needs: the role `app`, which is not a superuser, and its
/// database `app` with the extension.
#[derive(Debug)]
pub struct Application {
    server: Server,
    password: String,
}

impl Application {
    /// Starts the server.
    ///
    /// # Panics
    ///
    /// Panics if it does not start.
    #[must_use]
    #[track_caller]
    pub fn start(server: Builder) -> Self {
        let server = server.tcp().start();
        let password = password();
        let roles = format!("CREATE ROLE app LOGIN PASSWORD '{password}'");
        let mut superuser = server.connect();
        for sql in [roles.as_str(), "CREATE DATABASE app OWNER app"] {
            superuser.batch_execute(sql).expect("the server is new");
        }
        server.connect_to("app").batch_execute("CREATE EXTENSION snowflake_id").expect("it is installed");
        Self { server, password }
    }

    /// Returns the server, which a test may configure, stop and start again.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Connects to the application's database as the superuser.
    #[must_use]
    #[track_caller]
    pub fn connect(&self) -> Client {
        self.server.connect_to("app")
    }

    /// Returns the environment in which its programs find their database.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, String); 7] {
        let (port, password) = (self.server.port(), &self.password);
        [
            ("DATABASE_URL", format!("postgresql://app:{password}@127.0.0.1:{port}/app")),
            ("JDBC_DATABASE_URL", format!("jdbc:postgresql://127.0.0.1:{port}/app?user=app&password={password}")),
            ("PGHOST", "127.0.0.1".to_owned()),
            ("PGPORT", port.to_string()),
            ("PGUSER", "app".to_owned()),
            ("PGPASSWORD", password.clone()),
            ("PGDATABASE", "app".to_owned()),
        ]
    }

    /// Connects as the application's role.
    #[must_use]
    #[track_caller]
    pub fn connect_as_app(&self) -> Client {
        let url = &self.environment()[0].1;
        let config: Config = url.parse().expect("it is a URL");
        config.connect(NoTls).expect("the server accepts a connection")
    }
}

/// What a program is written in, and what runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// `python FILE`, with the libraries of `tests/clients/requirements.txt`.
    Python,
    /// `python FILE`, with the engines of `tests/clients/engines.txt`.
    Engines,
    /// `node FILE`, with the packages of `tests/clients/package-lock.json`.
    Node,
    /// The same, for packages that need Node 20.19 or later.
    Node20,
    /// `java FILE`, with Debian's driver.
    Java,
    /// `java CLASS` after `javac`, with Debian's EclipseLink and driver. EclipseLink does not find
    /// the classes of `java FILE`.
    EclipseLink,
    /// The same, with the jars of the directory that `HIBERNATE` names, and Debian's driver.
    Hibernate,
    /// A program that `tools/clients` has compiled, by its path in `tests/clients` without `.go`.
    Go,
    /// `php FILE`, with Debian's Eloquent.
    Php,
    /// `ruby FILE`, with Debian's ActiveRecord.
    Ruby,
}

impl Language {
    /// Names what a program needs besides itself.
    fn needs(self) -> &'static str {
        match self {
            Self::Python => "the libraries of tests/clients/requirements.txt",
            Self::Engines => "the engines of tests/clients/engines.txt",
            Self::Node => "Node with npm and the packages of tests/clients/package-lock.json",
            Self::Node20 => "Node 20.19 or later with npm and the packages of tests/clients/package-lock.json",
            Self::Java => "a JDK and PostgreSQL's JDBC driver",
            Self::EclipseLink => "a JDK, EclipseLink and PostgreSQL's JDBC driver",
            Self::Hibernate => "a JDK, PostgreSQL's JDBC driver, and HIBERNATE, a directory with Hibernate's jars",
            Self::Go => "the programs that tools/clients compiles",
            Self::Php => "PHP with its driver for PostgreSQL and Eloquent",
            Self::Ruby => "Ruby with its gems pg and activerecord",
        }
    }

    /// Returns the command line up to the file's name, or `None` if something is not installed.
    fn interpreter(self) -> Option<Vec<OsString>> {
        match self {
            Self::Python => Some(vec![libraries("python", "requirements.txt")?.join("bin/python").into()]),
            Self::Engines => Some(vec![libraries("engines", "engines.txt")?.join("bin/python").into()]),
            Self::Node => libraries("node", "package-lock.json").and(on_path("node")).map(|node| vec![node.into()]),
            Self::Node20 => {
                let node = Self::Node.interpreter()?;
                let test = "const [major, minor] = process.versions.node.split('.').map(Number); \
                            process.exit(major > 20 || (major === 20 && minor >= 19) ? 0 : 1)";
                let status = Command::new(&node[0]).args(["-e", test]).status().ok()?;
                status.success().then_some(node)
            }
            Self::Java => {
                // A runtime without the compiler cannot run source files.
                let java = on_path("javac").and(on_path("java")).filter(|_| Path::new(JDBC).exists())?;
                // Otherwise it would leave performance data in /tmp.
                Some(vec![java.into(), "-XX:-UsePerfData".into(), "-cp".into(), JDBC.into()])
            }
            Self::EclipseLink => {
                let jars = [JDBC, "/usr/share/java/eclipselink.jar", "/usr/share/java/eclipselink-jpa-2.1-spec.jar"];
                compiled_java(&jars.map(PathBuf::from))
            }
            Self::Hibernate => {
                let mut jars = vec![PathBuf::from(JDBC)];
                for file in fs::read_dir(env::var_os("HIBERNATE")?).expect("it is there") {
                    let path = file.expect("it can be listed").path();
                    jars.extend(Some(path).filter(|path| path.extension().is_some_and(|extension| extension == "jar")));
                }
                compiled_java(&jars)
            }
            Self::Go => {
                let programs = cache()?.join("clients/go");
                for client in ["pgx", "gorm"] {
                    for source in fs::read_dir(Path::new(PROGRAMS).join(client)).expect("the programs are there") {
                        let source = source.expect("it can be listed").path();
                        let compiled = programs.join(client).join(source.file_name().expect("it is a file"));
                        let is_compiled = fs::read(compiled).ok()? == fs::read(source).expect("it can be read");
                        is_compiled.then_some(())?;
                    }
                }
                let script = "program=$1; shift; exec \"$0/$program\" \"$@\"";
                Some(vec!["sh".into(), "-c".into(), script.into(), programs.into()])
            }
            Self::Php => {
                let php = on_path("php")?;
                let test =
                    "exit(extension_loaded('pdo_pgsql') && @include('Illuminate/Database/autoload.php') ? 0 : 1);";
                let test = Command::new(&php).args(["-r", test]).output().ok()?;
                test.status.success().then(|| vec![php.into()])
            }
            Self::Ruby => {
                // Debian's Ruby first, because another one on the PATH lacks Debian's packages.
                let debian = Some(PathBuf::from("/usr/bin/ruby")).filter(|ruby| ruby.exists());
                let ruby = debian.or_else(|| on_path("ruby"))?;
                let test = Command::new(&ruby).args(["-e", "require 'pg'; require 'active_record'"]).output().ok()?;
                test.status.success().then(|| vec![ruby.into()])
            }
        }
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|directory| directory.join(program)).find(|path| path.exists())
}

/// Returns a command line that compiles the directory's classes and runs one, if the `jars` exist.
fn compiled_java(jars: &[PathBuf]) -> Option<Vec<OsString>> {
    on_path("javac").filter(|_| jars.iter().all(|jar| jar.exists()))?;
    let script = "javac -J-XX:-UsePerfData -proc:none -cp \"$0\" *.java && \
                  exec java -XX:-UsePerfData -cp \"$0\" \"$@\"";
    let path = env::join_paths(jars.iter().map(PathBuf::as_path).chain([Path::new(".")])).expect("no name has a colon");
    Some(vec!["sh".into(), "-c".into(), script.into(), path])
}

/// Returns where `tools/clients` has put a language's libraries, if they match the present `pins`.
fn libraries(language: &str, pins: &str) -> Option<PathBuf> {
    let directory = cache()?.join("clients").join(language);
    let installed = fs::read(directory.join(pins)).ok()?;
    (installed == fs::read(Path::new(PROGRAMS).join(pins)).expect("the pins are there")).then_some(directory)
}

/// A program that can be run.
#[derive(Debug)]
pub struct Program {
    directory: PathBuf,
    interpreter: Vec<OsString>,
}

impl Program {
    /// Copies the directory `name` of `tests/clients`. If what runs it is not installed, returns
    /// `None` and reports the test as skipped.
    ///
    /// # Panics
    ///
    /// Panics if there is no such directory.
    #[must_use]
    pub fn new(language: Language, name: &str) -> Option<Self> {
        let Some(interpreter) = language.interpreter() else {
            skip(&format!("{name} needs {}; \"make setup\" gets what is missing", language.needs()));
            return None;
        };
        let directory = scratch::new_directory();
        copy(&Path::new(PROGRAMS).join(name).join("."), &directory);
        if matches!(language, Language::Node | Language::Node20) {
            // An ES module looks for packages above its file, whatever the environment says.
            let packages = libraries("node", "package-lock.json").expect("the interpreter was found with them");
            symlink(packages.join("node_modules"), directory.join("node_modules")).expect("it was just made");
        }
        Some(Self { directory, interpreter })
    }

    /// Writes a file into the program's directory.
    ///
    /// # Panics
    ///
    /// Panics if that is impossible.
    #[track_caller]
    pub fn add(&self, name: &str, text: &str) {
        fs::write(self.directory.join(name), text).expect("the program's directory is writable");
    }

    /// Takes a program that has been compiled. It is run without a file's name.
    #[must_use]
    pub fn compiled(path: &str) -> Self {
        Self { directory: scratch::new_directory(), interpreter: vec![path.into()] }
    }

    /// Runs a file of the directory, and returns what it prints to its standard output.
    ///
    /// # Panics
    ///
    /// Panics with everything it prints, if it fails, or has not ended after some minutes.
    #[track_caller]
    pub fn run(&self, application: &Application, arguments: &[&str]) -> String {
        let mut command = Command::new(&self.interpreter[0]);
        command.args(&self.interpreter[1..]).args(arguments);
        // Takes nothing from the caller's environment but the PATH, because programs may be
        // installed anywhere.
        command.env_clear().envs(env::var_os("PATH").map(|path| ("PATH", path)));
        command
            .envs(application.environment())
            .env("HOME", &self.directory)
            .env("TMPDIR", &self.directory)
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC");
        let [printed, errors] = ["stdout", "stderr"].map(|name| self.directory.join(name));
        let open = |path| File::create(path).expect("the program's directory is writable");
        // The working directory tells the reaper what to kill if this process ends. `Running` needs
        // the process group.
        command.current_dir(&self.directory).process_group(0);
        command.stdin(Stdio::null()).stdout(open(&printed)).stderr(open(&errors));
        let child = command.spawn().unwrap_or_else(|error| panic!("could not run {command:?}: {error}"));
        let mut running = Running(child);
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            let status = running.0.try_wait().expect("it is our child");
            if status.is_some() || Instant::now() > deadline {
                break status;
            }
            thread::sleep(Duration::from_millis(10));
        };
        let [printed, errors] = [printed, errors]
            .map(|path| String::from_utf8_lossy(&fs::read(path).expect("it was made above")).into_owned());
        assert!(
            status.is_some_and(|status| status.success()),
            "{arguments:?} failed ({status:?}); it printed:\n{printed}\n{errors}"
        );
        printed
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A program. When it is dropped, it is killed together with the processes that it has started.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = kill(Pid::from_raw(-pid_of(&self.0).as_raw()), Signal::SIGKILL);
            let _ = self.0.wait();
        }
    }
}

//! A test's database, and how two of them are compared.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use cluster::plans::rows;
use cluster::{Refusal, Server, refused};
use postgres::error::DbError;
use postgres::{Client, Error, NoTls};

/// The servers that the tests share, because a start takes longer than most tests. Each is started
/// with its first database. A static is never dropped; the harness's reaper stops the servers when
/// the process has ended.
static SERVERS: [LazyLock<Server>; 8] = [const { LazyLock::new(start) }; 8];

/// No more than can draw in one server.
const DATABASES_PER_SERVER: usize = 100;

fn start() -> Server {
    let settings = Server::drawing().config("wal_level", "logical").time_limit();
    // A conversion locks all parts of a table, and several tests run at once.
    let settings = settings.config("max_locks_per_transaction", "256").config("max_prepared_transactions", "10");
    let server = settings.start();
    server.connect().batch_execute("CREATE DATABASE prepared").unwrap();
    // Every role may try to convert.
    let granted = "CREATE EXTENSION snowflake_id; CREATE SCHEMA app;
         GRANT EXECUTE ON FUNCTION snowflake_convert, snowflake_convert_columns TO PUBLIC";
    server.connect_to("prepared").batch_execute(granted).unwrap();
    server
}

/// A database with the extension, on one of the shared servers.
pub struct Database {
    server: &'static Server,
    name: String,
}

impl Database {
    /// Makes a database and runs statements in it.
    #[track_caller]
    pub fn with(sql: &str) -> Self {
        let database = Self::made("TEMPLATE prepared");
        database.run(sql);
        database
    }

    /// Makes a database in which a letter is a byte.
    #[track_caller]
    pub fn in_latin1() -> Self {
        let database = Self::made("TEMPLATE template0 ENCODING LATIN1");
        database.run("CREATE SCHEMA app; CREATE EXTENSION snowflake_id SCHEMA public");
        database
    }

    #[track_caller]
    fn made(how: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: only the number itself matters.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let server = &*SERVERS[number / DATABASES_PER_SERVER];
        let name = format!("d{number}");
        server.connect().batch_execute(&format!("CREATE DATABASE {name} {how}")).unwrap();
        Self { server, name }
    }

    /// Makes a role that no other test uses, and returns its name.
    #[track_caller]
    pub fn role(&self, name: &str) -> String {
        let role = format!("{name}_{}", self.name);
        self.run(&format!("CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA app TO {role}"));
        role
    }

    /// Runs statements in a separate session.
    #[track_caller]
    pub fn run(&self, sql: &str) {
        if let Err(error) = self.connect().batch_execute(sql) {
            panic!("{error:?}\n{sql}");
        }
    }

    /// Connects as the superuser, with `app` in the search_path.
    #[track_caller]
    pub fn connect(&self) -> Client {
        self.connect_as("postgres")
    }

    #[track_caller]
    pub fn connect_as(&self, user: &str) -> Client {
        self.connect_and_listen_as(user, |_| String::new()).0
    }

    /// Connects as the superuser, and collects severity and message of what the server says besides
    /// results.
    #[track_caller]
    pub fn connect_and_listen(&self) -> (Client, Arc<Mutex<Vec<String>>>) {
        self.connect_and_listen_as("postgres", |notice| format!("{}: {}", notice.severity(), notice.message()))
    }

    /// The same with the DETAIL in place of the severity.
    #[track_caller]
    pub fn connect_and_listen_to_details(&self) -> (Client, Arc<Mutex<Vec<String>>>) {
        self.connect_and_listen_as("postgres", |notice| {
            format!("{}: {}", notice.message(), notice.detail().unwrap_or_default())
        })
    }

    #[track_caller]
    fn connect_and_listen_as(&self, user: &str, line: fn(&DbError) -> String) -> (Client, Arc<Mutex<Vec<String>>>) {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = Arc::clone(&heard);
        let mut connection = self.server.connection();
        connection.user(user).dbname(&self.name).options("-c search_path=app,public");
        connection.notice_callback(move |notice| {
            ear.lock().unwrap().push(line(&notice));
        });
        (connection.connect(NoTls).expect("the server accepts a connection"), heard)
    }

    /// The database as `pg_dump` writes it, with its rows, without the extension's marks.
    #[track_caller]
    pub fn dump(&self) -> String {
        let file = self.server.dump(&self.name, "postgres", &[]);
        let dump = fs::read_to_string(&file).expect("pg_dump has written it");
        fs::remove_file(file).expect("it is ours");
        // `restrict` is followed by a random word against a malicious server.
        let varies = |line: &&str| line.contains("snowflake_mark") || line.contains(r"restrict ");
        dump.lines().filter(|line| !varies(line)).map(without_name_of_not_null).collect::<Vec<_>>().join("\n")
    }

    /// Runs statements by hand in one transaction, with the default search_path.
    #[track_caller]
    pub fn by_hand(&self, statements: &[String]) {
        let mut psql = self.server.client("psql");
        psql.args(["--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", &self.name]);
        for statement in statements {
            psql.args(["--command", statement]);
        }
        let output = psql.output().expect("psql runs");
        assert!(output.status.success(), "{statements:#?}\n{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs a block of a page, and returns what psql prints, and the messages, with SQLSTATEs; if a
    /// statement fails, only these.
    ///
    /// # Errors
    /// As said.
    pub fn psql(&self, block: &str) -> Result<(String, String), String> {
        let mut psql = self.server.client("psql");
        psql.args(["-XAt", "--set=ON_ERROR_STOP=1", "--set=VERBOSITY=verbose", &self.name]);
        let mut child =
            psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("psql runs");
        child.stdin.take().expect("it is piped").write_all(block.as_bytes()).expect("psql reads");
        let output = child.wait_with_output().expect("psql ends");
        let [printed, messages] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8"));
        if output.status.success() { Ok((printed, messages)) } else { Err(messages) }
    }

    /// Ends a session as an administrator would.
    #[track_caller]
    pub fn terminate(&self, pid: i32) {
        self.connect().execute("SELECT pg_terminate_backend($1)", &[&pid]).unwrap();
    }

    /// Waits until a session waits for a lock.
    #[track_caller]
    pub fn wait_until_locked(&self, pid: i32) {
        self.server.wait_until_locked(pid);
    }

    /// Expects that a call is refused, with `dry_run` and without, and has changed nothing: no
    /// catalog has another row than before. Returns what the server said.
    #[track_caller]
    pub fn refusal(&self, session: &mut Client, call: &str) -> Refusal {
        let before = catalogs(&mut self.connect());
        let dry = refused(convert(session, &format!("{call}, dry_run => true")));
        let refusal = refused(convert(session, call));
        // The numbers in a message may differ.
        assert_eq!((&dry.sqlstate, &dry.hint), (&refusal.sqlstate, &refusal.hint), "{dry:?}, {refusal:?}");
        assert_eq!(before, catalogs(&mut self.connect()), "{call}: {refusal:?}");
        refusal
    }

    /// Expects that a call is refused, and changes nothing, because of objects for which `dry_run`
    /// returns statements. Returns what the server said, and these statements.
    #[track_caller]
    pub fn obstructed(&self, session: &mut Client, call: &str) -> (Refusal, Vec<String>) {
        let before = catalogs(&mut self.connect());
        let refusal = refused(convert(session, call));
        assert_eq!(refusal.sqlstate, "2BP01", "{call}: {refusal:?}");
        let script = converted(session, &format!("{call}, dry_run => true"));
        assert_eq!(before, catalogs(&mut self.connect()), "{call}: {refusal:?}");
        assert!(refusal.hint.as_deref().is_some_and(|hint| hint.contains("dry_run => true")), "{refusal:?}");
        (refusal, script)
    }
}

impl Drop for Database {
    /// Never panics: it runs while a failed test unwinds.
    fn drop(&mut self) {
        if let Ok(mut session) = self.server.connection().connect(NoTls) {
            let _ = session.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
        }
    }
}

/// From PostgreSQL 18 on NOT NULL is a constraint with a name. When a type is changed, PostgreSQL
/// renames the constraint of an attached partition after its parent's.
fn without_name_of_not_null(line: &str) -> String {
    let parts = line.split_once(" CONSTRAINT ").and_then(|(column, rest)| {
        let (_, rest) = rest.split_once("_not_null NOT NULL")?;
        Some(format!("{column} NOT NULL{rest}"))
    });
    parts.unwrap_or_else(|| line.to_owned())
}

/// Calls `snowflake_convert` with arguments as SQL writes them, or `snowflake_convert_columns`, if
/// the first is an array. Returns the statements, without the sizes of a dry run.
pub fn convert(session: &mut Client, call: &str) -> Result<Vec<String>, Error> {
    let function = if call.starts_with("ARRAY") { "snowflake_convert_columns" } else { "snowflake_convert" };
    let mut script = rows(session, &format!("SELECT * FROM public.{function}({call})"))?;
    script.retain(|line| !line.starts_with("-- size: "));
    Ok(script)
}

/// Calls like [`try_call`]; the call must succeed.
#[track_caller]
pub fn converted(session: &mut Client, call: &str) -> Vec<String> {
    match convert(session, call) {
        Ok(statements) => statements,
        Err(error) => panic!("{call}: {error:?}"),
    }
}

/// What the catalogs hold about all objects that are not PostgreSQL's own, with the numbers of
/// objects and files.
#[track_caller]
pub fn catalogs(session: &mut Client) -> Vec<String> {
    // Without what statistics, vacuum and the first use of an index leave there.
    let queries = [
        "SELECT 'class', oid::regclass, oid, relfilenode, relkind, relowner, relacl, relchecks, relhasrules, relreplident,
                relrowsecurity, relispartition, reloptions
         FROM pg_class WHERE oid >= 16384",
        "SELECT 'attribute', a.attrelid::regclass, a.attnum, a.attname, a.atttypid::regtype, a.attnotnull, a.attidentity,
                a.attgenerated, a.attstattarget, a.attstorage, a.attoptions, a.attacl, a.attinhcount, d.oid,
                pg_get_expr(d.adbin, d.adrelid)
         FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
         WHERE a.attrelid >= 16384",
        "SELECT 'constraint', c.oid, c.conname, c.convalidated, c.conparentid, pg_get_constraintdef(c.oid),
                obj_description(c.oid, 'pg_constraint')
         FROM pg_constraint c WHERE c.oid >= 16384",
        "SELECT 'sequence', seqrelid::regclass, s.*, pg_sequence_last_value(seqrelid) FROM pg_sequence s
         WHERE seqrelid::regclass::text NOT LIKE '%snowflake_mark%'",
        "SELECT 'trigger', tgrelid::regclass, oid, tgname, tgenabled FROM pg_trigger",
        "SELECT 'dependency', d.* FROM pg_depend d WHERE objid >= 16384",
    ];
    let mut described: Vec<String> = queries.iter().flat_map(|query| rows(session, query).unwrap()).collect();
    described.sort();
    described
}

/// One side of a schema in which `{before -> after}` stands for what is to change.
pub fn side(schema: &str, after: bool) -> String {
    let mut text = String::new();
    let mut parts = schema.split('{');
    text += parts.next().unwrap_or_default();
    for part in parts {
        let (change, rest) = part.split_once('}').expect("a test closes its braces");
        let (old, new) = change.split_once("->").expect("a test says what becomes of it");
        text += if after { new.trim() } else { old.trim() };
        text += rest;
    }
    text
}

/// Asserts that the calls turn a schema's left sides into its right sides, that a dry run changes
/// nothing and returns the same statements, and that these have the same effect by hand. Returns
/// the converted database.
#[track_caller]
pub fn assert_becomes(schema: &str, calls: &[&str]) -> Database {
    let wanted = Database::with(&side(schema, true)).dump();
    let [by_hand, by_call] = [(); 2].map(|()| Database::with(&side(schema, false)));
    let mut statements = Vec::new();
    for call in calls {
        let mut session = by_hand.connect();
        let before = catalogs(&mut session);
        let dry = converted(&mut session, &format!("{call}, dry_run => true"));
        assert_eq!(before, catalogs(&mut session), "a dry run of {call}");
        drop(session);
        by_hand.by_hand(&dry);
        // The comments at its head.
        let dry: Vec<_> = dry.into_iter().filter(|line| !line.starts_with("--")).collect();
        assert_eq!(converted(&mut by_call.connect(), call), dry, "{call}");
        statements.extend(dry);
    }
    assert_same(&by_call.dump(), &wanted, &statements);
    assert_same(&by_hand.dump(), &wanted, &statements);
    by_call
}

/// Asserts that two dumps are the same, or says which lines only one of them has.
#[track_caller]
pub fn assert_same(dump: &str, wanted: &str, statements: &[String]) {
    let only = |sign: &str, these: &str, those: &str| -> Vec<String> {
        let those: Vec<&str> = those.lines().collect();
        these.lines().filter(|line| !those.contains(line)).map(|line| format!("{sign} {line}")).collect()
    };
    let lines = [only("-", wanted, dump), only("+", dump, wanted)].concat().join("\n");
    let moved = wanted.lines().zip(dump.lines()).find(|(wanted, dump)| wanted != dump);
    assert!(dump == wanted, "{lines}\nfirst {moved:?}\nafter\n{}", statements.join(";\n"));
}

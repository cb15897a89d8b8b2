//! Applications, written after what real ones do (`applications/`), are moved in by the page's
//! procedure for a whole schema, and back, while four sessions write. Nothing of them breaks that
//! was not named before.
//!
//! A file has the schema, what drops the constraints that are refused, and the application's
//! statements, one in a line. A line that ends in `-- breaks: NAME` fails with ids, and NAME is the
//! object that must be named.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use cluster::pages::block;
use cluster::{Draw, Ends, wait_until};

use super::database::Database;

/// The statements of a section, each with the object because of which it fails.
type Statements = Vec<(&'static str, Option<&'static str>)>;

fn statements(section: &'static str) -> Statements {
    let parts = |line: &'static str| {
        line.split_once(" -- breaks: ").map_or((line, None), |(statement, object)| (statement, Some(object)))
    };
    section.lines().filter(|line| !line.is_empty()).map(parts).collect()
}

/// The objects that a dry run has named: suspects and dropped sequences by their lines, constraints
/// by a message.
fn is_named(object: &str, script: &[&str], messages: &str) -> bool {
    let (suspect, dropped) = (format!("-- suspect: {object}, "), format!("DROP SEQUENCE {object};"));
    script.iter().any(|line| line.starts_with(&suspect) || *line == dropped)
        || !object.contains('.') && messages.contains(object)
}

/// Runs all statements in a new session, and returns the objects of those that fail. Either the
/// statement or its error tells something of that object's name.
fn broken(database: &Database, statements: &Statements) -> Vec<&'static str> {
    let mut session = database.connect();
    let mut objects = Vec::new();
    for (statement, object) in statements {
        let Err(error) = session.batch_execute(statement) else { continue };
        let told = format!("{statement}\n{error:?}");
        let object = object.unwrap_or_else(|| panic!("{told}"));
        let names = object.split(['.', '(', ',', ')']).filter(|name| !["app", "integer", "text", ""].contains(name));
        assert!(names.into_iter().any(|name| told.contains(name)), "{object}: {told}");
        objects.push(object);
    }
    objects
}

/// Runs the statements that never fail, in turn, until it is over.
fn write(database: &Database, statements: &Statements, first: usize, over: &AtomicBool, written: &AtomicUsize) {
    let _end = Ends(over);
    let (mut session, mut is_old) = (database.connect(), true);
    let unbroken = statements.iter().filter(|(_, object)| object.is_none()).map(|(statement, _)| statement);
    for statement in unbroken.cycle().skip(first) {
        if over.load(Ordering::Relaxed) {
            break;
        }
        while let Err(error) = session.batch_execute(statement) {
            // In an open session PL/pgSQL keeps types of before, and the page says to connect
            // again. Once, because there is one conversion that widens.
            let is_stale = error.code().is_some_and(|code| ["42804", "22003"].contains(&code.code()));
            assert!(is_stale && is_old, "{statement}\n{error:?}");
            (session, is_old) = (database.connect(), false);
        }
        written.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs a block of the page until it gets its locks, as the page says. Returns what it prints.
#[track_caller]
fn insist(database: &Database, block: &str) -> String {
    let mut printed = String::new();
    wait_until("the locks", || match database.psql(block) {
        Ok((output, _)) => {
            printed = output;
            true
        }
        Err(messages) => {
            assert!(messages.contains("55P03"), "{messages}");
            false
        }
    });
    printed
}

/// `kinds` are words of lines by which alone a dry run names one of the objects.
#[track_caller]
fn assert_moves(file: &'static str, kinds: &[&str]) {
    let mut sections = file.split("\n-- ---\n");
    let schema = sections.next().expect("the schema");
    let [mends, statements] = [(); 2].map(|()| statements(sections.next().expect("two more sections")));
    let planted: Vec<_> = statements.iter().filter_map(|(_, object)| *object).collect();
    assert!(statements.len() >= 20);

    let database = Database::with(schema);
    let there = block("whole-schema").replace("'shop'", "'app'");
    let back = block("schema-to-sequences").replace("'office'", "'app'");
    let dry = there.replace("\n\\gexec", ";");
    let (over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    let busy = || {
        let enough = written.load(Ordering::Relaxed) + 4 * statements.len();
        let is_enough = || written.load(Ordering::Relaxed) > enough || over.load(Ordering::Relaxed);
        wait_until("the writers", is_enough);
    };
    thread::scope(|scope| {
        let _end = Ends(&over);
        let (database, statements, over, written) = (&database, &statements, &over, &written);
        for number in 0..4 {
            scope.spawn(move || write(database, statements, 5 * number, over, written));
        }
        busy();
        assert_eq!(broken(database, statements), [""; 0], "before");

        let refusal = database.psql(&dry).expect_err("no id can satisfy some constraints");
        for (mend, object) in &mends {
            let object = object.expect("each drops a constraint");
            assert!(refusal.contains(object), "{object}: {refusal}");
            database.run(mend);
        }
        let (script, messages) = database.psql(&dry).expect("nothing is refused any more");
        let lines: Vec<_> = script.lines().collect();
        let unnamed: Vec<_> = planted.iter().filter(|object| !is_named(object, &lines, &messages)).collect();
        assert!(unnamed.is_empty(), "{unnamed:?} in\n{script}\n{messages}");
        // The control: without any one kind of line this would fail.
        for kind in kinds {
            let lines: Vec<_> = lines.iter().copied().filter(|line| !line.contains(kind)).collect();
            assert!(!planted.iter().all(|object| is_named(object, &lines, &messages)), "{kind}");
        }

        let printed = insist(database, &there);
        let mut session = database.connect();
        let left = "SELECT coalesce(string_agg('sequence app.' || relname, E'\n'), '') FROM pg_class
            WHERE relkind = 'S' AND relnamespace = 'app'::regnamespace";
        for sequence in session.value(left).lines() {
            assert!(printed.lines().any(|line| line == sequence), "{sequence} in {printed}");
        }
        let counting = "SELECT count(*) FROM information_schema.columns
            WHERE table_schema = 'app' AND (is_identity = 'YES' OR column_default LIKE '%nextval(%')";
        assert_eq!(session.value(counting), "0");
        busy();
        assert_eq!(broken(database, statements), planted, "after");

        insist(database, &back);
        busy();
        // An identity's sequence can have the name of a dropped one, so less is broken.
        broken(database, statements);
        busy();
    });
}

#[test]
fn a_forum_moves_in_and_back() {
    let columns = ["integer, named like a key of", "integer[], named", "generated from"];
    let functions = ["takes integer", "returns integer", "has integer in its text", "names sequence", "DROP SEQUENCE"];
    assert_moves(include_str!("applications/forum.sql"), &[&columns[..], &functions[..]].concat());
}

#[test]
fn a_catalogue_moves_in_and_back() {
    assert_moves(include_str!("applications/catalogue.sql"), &["integer, named like a key", "app.key, ", "called by"]);
}

#[test]
fn a_shop_moves_in_and_back() {
    assert_moves(include_str!("applications/shop.sql"), &["integer, named like a key of app.orders"]);
}

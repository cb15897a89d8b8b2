//! Public ids in the SQL edition: their tokens are those of the extension, each id keeps its token,
//! any other text is none, and keys stay with their owner.
//!
//! Each check runs on the edition as it is, and on editions that lie: one rule of the text is
//! changed, and the check that is named beside it must fail.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use cluster::plans::explain;
use cluster::refusal::assert_refused_as;
use cluster::{Draw, EDITION, Running, Server, plan, refused, skip, wait_until};
use postgres::Client;

/// Of `tests/public-ids.tsv`: by Python's cryptography, and by openssl.
const VECTORS: &str = include_str!("../../../../src/core/tests/public-ids.tsv");

const LETTERS: &str = "0123456789abcdefghjkmnpqrstvwxyz";

/// Starts a server without the library. `None` if it has no pgcrypto.
fn start() -> Option<Server> {
    let server = Server::builder().without_preload().start();
    if !server.has_extension("pgcrypto") {
        skip("pgcrypto is not installed");
        return None;
    }
    Some(server)
}

/// Runs a check on the edition as it is.
fn check(holds: fn(&Server, &str)) {
    if let Some(server) = start() {
        holds(&server, EDITION);
    }
}

/// Makes a database, and connects to it.
fn database(server: &Server) -> (Client, String) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // Only a number, which orders nothing.
    let name = format!("database_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let mut session = server.connect();
    // In two calls, because one would be a transaction.
    for sql in ["CREATE DATABASE {}", "ALTER DATABASE {} SET search_path = edition, public"] {
        session.batch_execute(&sql.replace("{}", &name)).expect("the name is new");
    }
    (server.connect_to(&name), name)
}

/// Installs an edition in a schema of a new database, without pgcrypto.
fn without_pgcrypto(server: &Server, edition: &str) -> (Client, String) {
    let (mut session, name) = database(server);
    session.batch_execute("CREATE SCHEMA edition").unwrap();
    session.batch_execute(edition).expect("the file can be run");
    session.batch_execute("SELECT snowflake_install(worker_id => 5)").unwrap();
    (session, name)
}

/// The same with pgcrypto, in a schema whose name needs quotes.
fn installed(server: &Server, edition: &str) -> (Client, String) {
    let (mut session, name) = without_pgcrypto(server, edition);
    session.batch_execute("CREATE SCHEMA \"Of Crypto\"; CREATE EXTENSION pgcrypto SCHEMA \"Of Crypto\"").unwrap();
    (session, name)
}

/// Makes a key, and returns its first id.
fn new_key(session: &mut Client, arguments: &str) -> i64 {
    let fingerprint = session.value(&format!("SELECT snowflake_new_public_key({arguments})"));
    let first_id = format!("SELECT first_id FROM snowflake_public_keys WHERE fingerprint = '{fingerprint}'");
    session.value(&first_id).parse().unwrap()
}

/// A key of 32 bytes, as an argument.
fn key(byte: u8) -> String {
    format!("decode(repeat('{byte:02x}', 32), 'hex')")
}

fn conceal(session: &mut Client, id: i64) -> String {
    session.value(&format!("SELECT snowflake_conceal('{id}', 'ord')"))
}

fn reveal(session: &mut Client, token: &str) -> String {
    session.value(&format!("SELECT snowflake_reveal('{token}', 'ord')"))
}

/// The token of an id by a key that conceals all ids: in another database.
fn forged(other: &mut Client, byte: u8, id: i64) -> String {
    new_key(other, &format!("{}, for_all => true", key(byte)));
    conceal(other, id)
}

fn tokens_are_those_of_the_vectors(server: &Server, edition: &str) {
    let (mut session, _) = installed(server, edition);
    let mut rows = 0;
    for row in VECTORS.lines().filter(|row| !row.starts_with('#')) {
        let [key, id, prefix, token] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("{row}") };
        new_key(&mut session, &format!("decode('{key}', 'hex'), for_all => true"));
        assert_eq!(session.value(&format!("SELECT snowflake_conceal('{id}', '{prefix}')")), token, "{row}");
        assert_eq!(session.value(&format!("SELECT snowflake_reveal('{token}', '{prefix}')")), id, "{row}");
        assert_eq!(
            session.value(&format!("SELECT snowflake_reveal(ARRAY['x', NULL, '{token}'], '{prefix}')")),
            format!("{{NULL,NULL,{id}}}")
        );
        rows += 1;
    }
    assert!(rows >= 10, "{rows} rows");
    // And any other id comes back.
    let ids = "SELECT count(*) FROM (SELECT hashint8extended(g, 0) FROM generate_series(1, 300) g) i (id)
               WHERE snowflake_reveal(snowflake_conceal(id, 'a_b'), 'a_b') = id";
    assert_eq!(session.value(ids), "300");
    let most = "SELECT snowflake_reveal(snowflake_conceal(9223372036854775807, 'ord'), 'ord')";
    assert_eq!(session.value(most), i64::MAX.to_string());
}

fn no_other_text_is_a_token(server: &Server, edition: &str) {
    let (mut session, _) = installed(server, edition);
    new_key(&mut session, &key(1));
    let token = conceal(&mut session, 249_498_276_909_305_860);
    let letters = &token[4..];
    let mut texts: Vec<String> = ["", "ord", "ord_", "_", "é", "ord_é"].map(str::to_owned).to_vec();
    texts.extend([
        letters.to_owned(),
        token.to_uppercase(),
        format!("ord_{}", letters.to_uppercase()),
        format!("ORD_{letters}"),
        format!("{token}\n"),
        format!(" {token}"),
        format!("{token}0"),
        token[..29].to_owned(),
        token.replace('_', "-"),
        format!("usr_{letters}"),
        format!("or_{letters}"),
        session.value("SELECT snowflake_conceal(249498276909305860, 'usr')"),
    ]);
    // The same number, with bits above the 128th.
    let first = LETTERS.find(&letters[..1]).unwrap();
    assert!(first < 8, "{token}");
    texts.extend([8, 16, 24].map(|more| format!("ord_{}{}", &LETTERS[first + more..=first + more], &letters[1..])));
    // One letter changed.
    for place in 4..30 {
        let others = (LETTERS.to_owned() + "ilouAZ-_ ").chars().map(|other| other.to_string()).collect::<Vec<_>>();
        let others = others.into_iter().filter(|other| *other != token[place..=place]);
        texts.extend(others.map(|other| format!("{}{other}{}", &token[..place], &token[place + 1..])));
    }
    assert!(texts.len() > 26 * 31);
    let sql = "SELECT snowflake_reveal($1::text[], 'ord')";
    let ids: Vec<Option<i64>> = session.query_one(sql, &[&texts]).unwrap().get(0);
    for (text, id) in texts.iter().zip(ids) {
        assert_eq!(id, None, "{text}");
    }
    assert_eq!(reveal(&mut session, &token), "249498276909305860");
}

/// A collation may hold capitals for equal to small letters.
fn a_collation_changes_no_token(server: &Server, edition: &str) {
    let (mut session, _) = installed(server, edition);
    new_key(&mut session, &key(1));
    let folded = "CREATE COLLATION folded (PROVIDER = icu, LOCALE = 'und-u-ks-level2', DETERMINISTIC = false)";
    if session.batch_execute(folded).is_err() {
        return skip("PostgreSQL has no ICU");
    }
    let sql = |token: &str| format!("SELECT snowflake_reveal({token} COLLATE folded, 'ord' COLLATE folded)");
    assert_eq!(session.value(&sql("snowflake_conceal(7, 'ord' COLLATE folded)")), "7");
    assert_eq!(session.value(&sql("upper(snowflake_conceal(7, 'ord'))")), "NULL");
    let refusal = refused(session.batch_execute("SELECT snowflake_conceal(7, 'ORD' COLLATE folded)"));
    assert_eq!(refusal.sqlstate, "22023");
}

fn each_id_has_one_token(server: &Server, edition: &str) {
    let (mut other, _) = installed(server, edition);
    for layout in ["snowflake", "js53"] {
        let (mut session, _) = installed(server, edition);
        session.batch_execute(&format!("SELECT snowflake_install(layout => '{layout}', accept => true)")).unwrap();
        assert_eq!(new_key(&mut session, &key(1)), i64::MIN);
        let id = session.draw();
        let token = conceal(&mut session, id);
        assert_eq!(token, forged(&mut other, 1, id));
        // The second key begins 10 seconds ahead of the clock.
        let second = new_key(&mut session, &key(2));
        let ahead = "SELECT snowflake_timestamp(first_id) - created_at BETWEEN '10 s' AND '1 h'
                     FROM snowflake_public_keys WHERE first_id > 0";
        assert_eq!(session.value(ahead), "true");
        assert_eq!(conceal(&mut session, id), token);
        for (id, by, not_by) in [(i64::MIN, 1, 2), (id, 1, 2), (second - 1, 1, 2), (second, 2, 1), (i64::MAX, 2, 1)] {
            let token = forged(&mut other, by, id);
            assert_eq!(conceal(&mut session, id), token);
            assert_eq!(reveal(&mut session, &token), id.to_string());
            // A key forges no token of another key's range.
            let token = forged(&mut other, not_by, id);
            assert_eq!(reveal(&mut session, &token), "NULL");
        }
        // The third key begins 10 seconds ahead of the last id.
        let hour = "SELECT snowflake_min(now() + interval '1 h')";
        let last: i64 = session.value(hour).parse().unwrap();
        session.batch_execute(&format!("SELECT snowflake_advance({last})")).unwrap();
        let third = new_key(&mut session, &key(3));
        let ahead = format!("SELECT snowflake_timestamp({third}) - snowflake_timestamp({last}) >= '10 s'");
        assert_eq!(session.value(&ahead), "true");
        assert_eq!(conceal(&mut session, third - 1), forged(&mut other, 2, third - 1));
        // One that is made within a moment begins with the next id.
        assert_eq!(new_key(&mut session, &key(5)), third + 1);
        assert_eq!(conceal(&mut session, third), forged(&mut other, 3, third));
        // Known keys are not added again.
        for (byte, first_id) in [(1, i64::MIN), (2, second), (3, third)] {
            assert_eq!(new_key(&mut session, &key(byte)), first_id);
        }
        // The emergency.
        assert_eq!(new_key(&mut session, &format!("{}, for_all => true", key(4))), i64::MIN);
        assert_eq!(reveal(&mut session, &token), "NULL");
        for id in [id, third] {
            assert_eq!(conceal(&mut session, id), forged(&mut other, 4, id));
        }
        let token = conceal(&mut session, id);
        session.batch_execute("DELETE FROM snowflake_public_keys").unwrap();
        assert_eq!(reveal(&mut session, &token), "NULL");
    }
}

fn a_key_whose_range_has_begun_is_added_by_force_only(server: &Server, edition: &str) {
    let (mut session, _) = installed(server, edition);
    // The first one may begin anywhere, because no token was given out.
    assert_eq!(new_key(&mut session, &format!("{}, first_id => 1000", key(1))), 1000);
    let add = format!("{}, first_id => 5000", key(2));
    let refusal = refused(session.batch_execute(&format!("SELECT snowflake_new_public_key({add})")));
    assert_refused_as(&refusal, "55000", "ids from first_id 5000 on may have been concealed already");
    assert_eq!(new_key(&mut session, &format!("{add}, force => true")), 5000);
    let refusal = refused(session.batch_execute("SELECT snowflake_conceal(999, 'ord')"));
    assert_refused_as(&refusal, "55000", "no key conceals ids before the first key's");
    let hour: i64 = session.value("SELECT snowflake_min(now() + interval '1 h')").parse().unwrap();
    assert_eq!(new_key(&mut session, &format!("first_id => {hour}")), hour);
    let refusal = refused(session.batch_execute(&format!("SELECT snowflake_new_public_key(first_id => {hour})")));
    assert_eq!(refusal.sqlstate, "23505");
    // Ids may run ahead of the clock, by as much as is installed, while a key is being committed.
    session.batch_execute("SELECT snowflake_install(max_borrow => 60000)").unwrap();
    let too_soon = "SELECT snowflake_new_public_key(first_id => snowflake_min(now() + interval '1 min'))";
    assert_eq!(refused(session.batch_execute(too_soon)).sqlstate, "55000");
    let ahead = format!("SELECT snowflake_timestamp({}) - now() > '1 min'", new_key(&mut session, ""));
    assert_eq!(session.value(&ahead), "true");
}

/// The statement's snapshot is older than the second key.
fn a_statement_sees_keys_that_are_committed_while_it_runs(server: &Server, edition: &str) {
    let (mut session, name) = installed(server, edition);
    new_key(&mut session, &key(1));
    session.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(42)").unwrap();
    let running = Running::start(
        server.connect_to(&name),
        "SELECT snowflake_reveal(snowflake_conceal(9223372036854775807, 'ord'), 'ord')
         WHERE pg_advisory_xact_lock(42) IS NOT NULL",
    );
    server.wait_until_locked(running.pid);
    let first_id = new_key(&mut session, &key(2));
    assert!(first_id > 0);
    session.batch_execute("COMMIT").unwrap();
    assert_eq!(running.end().1.unwrap(), [i64::MAX]);
}

fn a_transaction_with_one_snapshot_conceals_no_id_that_a_later_key_may_conceal(server: &Server, edition: &str) {
    let (mut session, name) = installed(server, edition);
    new_key(&mut session, &key(1));
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let conceal = |ahead: &str| {
            format!(
                "BEGIN ISOLATION LEVEL {level};
                 SELECT snowflake_conceal(snowflake_min(now() + interval '{ahead}'), 'ord'), snowflake_conceal(-1, 'ord')"
            )
        };
        session.batch_execute(&conceal("0.99 s")).unwrap();
        session.batch_execute("ROLLBACK").unwrap();
        let refusal = refused(session.batch_execute(&conceal("1.01 s")));
        assert_eq!(refusal.sqlstate, "25001");
        assert!(refusal.message.starts_with("cannot conceal id "), "{}", refusal.message);
        session.batch_execute("ROLLBACK").unwrap();
        let make = format!("BEGIN ISOLATION LEVEL {level}; SELECT snowflake_new_public_key()");
        assert_eq!(refused(session.batch_execute(&make)).sqlstate, "25001");
        session.batch_execute("ROLLBACK").unwrap();
    }
    let read_committed = "BEGIN; SELECT snowflake_conceal(snowflake_min(now() + interval '1 h'), 'ord'); COMMIT";
    session.batch_execute(read_committed).unwrap();

    // The key was made before the transaction began, and is committed after.
    let mut maker = server.connect_to(&name);
    loop {
        maker.batch_execute("BEGIN").unwrap();
        let first_id = new_key(&mut maker, "");
        session.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT snowflake_conceal(-1, 'ord')").unwrap();
        let committed = maker.batch_execute("COMMIT");
        let refusal = refused(session.batch_execute(&format!("SELECT snowflake_conceal({first_id}, 'ord')")));
        assert_eq!(refusal.sqlstate, "25001");
        session.batch_execute("ROLLBACK").unwrap();
        // A busy machine may have taken more than the 5 seconds that there are.
        let Err(error) = committed else { break };
        assert_eq!(refused::<()>(Err(error)).message, "the transaction has kept a new key for too long");
    }
}

fn a_key_that_is_committed_too_late_is_refused(server: &Server, edition: &str) {
    let (mut session, name) = installed(server, edition);
    let mut other = server.connect_to(&name);
    new_key(&mut session, &key(1));
    let advance =
        |other: &mut Client, id: i64| other.batch_execute(&format!("SELECT snowflake_advance({id})")).unwrap();
    session.batch_execute("BEGIN").unwrap();
    let first_id = new_key(&mut session, &key(2));
    // Others reach its range, as they do 10 seconds later.
    advance(&mut other, first_id);
    let refusal = refused(session.batch_execute("COMMIT"));
    assert_refused_as(&refusal, "55000", "the transaction has kept a new key for too long");
    assert!(refusal.detail.unwrap().contains(&first_id.to_string()));
    assert_eq!(other.value("SELECT count(*) FROM snowflake_public_keys"), "1");

    // Not if it was rolled back, or forced, or is one for all ids.
    session.batch_execute("BEGIN; SAVEPOINT s").unwrap();
    let first_id = new_key(&mut session, &key(2));
    session.batch_execute("ROLLBACK TO s").unwrap();
    advance(&mut other, first_id);
    session.batch_execute("COMMIT").unwrap();
    session.batch_execute("BEGIN").unwrap();
    let first_id = new_key(&mut session, &format!("{}, force => true", key(2)));
    advance(&mut other, first_id);
    session.batch_execute("COMMIT").unwrap();
    session.batch_execute("BEGIN").unwrap();
    new_key(&mut session, &format!("{}, for_all => true", key(3)));
    let id = other.value("SELECT snowflake_min(now() + interval '1 h')").parse().unwrap();
    advance(&mut other, id);
    session.batch_execute("COMMIT").unwrap();
    assert_eq!(other.value("SELECT count(*) FROM snowflake_public_keys"), "1");
}

/// Functions with the names and types of pgcrypto's, which give the keys away.
const FAKES: &str = "CREATE SCHEMA a_fake;
    CREATE TABLE a_fake.seen (by name); GRANT ALL ON a_fake.seen TO PUBLIC; GRANT USAGE ON SCHEMA a_fake TO PUBLIC;
    CREATE FUNCTION a_fake.encrypt(bytea, bytea, text) RETURNS bytea LANGUAGE sql AS
        'INSERT INTO a_fake.seen VALUES (current_user); SELECT $1';
    CREATE FUNCTION a_fake.decrypt(bytea, bytea, text) RETURNS bytea LANGUAGE sql AS
        'INSERT INTO a_fake.seen VALUES (current_user); SELECT $1';
    CREATE FUNCTION a_fake.hmac(bytea, bytea, text) RETURNS bytea LANGUAGE sql AS
        'INSERT INTO a_fake.seen VALUES (current_user); SELECT $2';
    CREATE FUNCTION a_fake.gen_random_bytes(integer) RETURNS bytea LANGUAGE sql AS
        'INSERT INTO a_fake.seen VALUES (current_user); SELECT decode(repeat(''00'', $1), ''hex'')'";

fn no_function_but_pgcryptos_gets_a_key(server: &Server, edition: &str) {
    let (mut session, name) = without_pgcrypto(server, edition);
    session.batch_execute(FAKES).unwrap();
    session.batch_execute("SET search_path = a_fake, edition, pg_catalog").unwrap();
    for call in
        ["snowflake_new_public_key()", "snowflake_conceal(1, 'ord')", "snowflake_reveal(repeat('0', 30), 'ord')"]
    {
        if call.contains("reveal") {
            // Is no token, whatever the key.
            assert_eq!(session.value(&format!("SELECT {call}")), "NULL");
            continue;
        }
        let refusal = refused(session.batch_execute(&format!("SELECT {call}")));
        assert_refused_as(&refusal, "0A000", "public ids need the extension \"pgcrypto\"");
    }
    session.batch_execute("CREATE SCHEMA of_crypto; CREATE EXTENSION pgcrypto SCHEMA of_crypto").unwrap();
    let of_key = "decode('000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f', 'hex')";
    session.batch_execute(&format!("SELECT snowflake_new_public_key({of_key})")).unwrap();
    // Wherever it is moved.
    session.batch_execute("CREATE SCHEMA \"Other \"\"Crypto\"").unwrap();
    for schema in ["of_crypto", "\"Other \"\"Crypto\"", "public"] {
        session.batch_execute(&format!("ALTER EXTENSION pgcrypto SET SCHEMA {schema}")).ok();
        let token = session.value("SELECT edition.snowflake_conceal(1, 'ord')");
        assert_eq!(token, "ord_27xhgkv8783g9brj0n2t3mdpe8");
        assert_eq!(session.value(&format!("SELECT edition.snowflake_reveal('{token}', 'ord')")), "1");
    }
    assert_eq!(session.value("SELECT count(*) FROM a_fake.seen"), "0");

    // Where pgcrypto was when the transaction's snapshot was taken.
    session.batch_execute("ALTER EXTENSION pgcrypto SET SCHEMA of_crypto; DROP SCHEMA a_fake CASCADE").unwrap();
    let mut old = server.connect_to(&name);
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").unwrap();
    session.batch_execute("ALTER EXTENSION pgcrypto SET SCHEMA public").unwrap();
    session.batch_execute(&FAKES.replace("CREATE SCHEMA a_fake;", "").replace("a_fake", "of_crypto")).unwrap();
    let refusal = refused(old.batch_execute("SELECT edition.snowflake_conceal(1, 'ord')"));
    assert_refused_as(&refusal, "0A000", "public ids need the extension \"pgcrypto\"");
}

/// Who owns the extension or its schema can put other functions there while a call looks for them.
fn no_role_that_could_exchange_pgcryptos_functions_is_trusted(server: &Server, edition: &str) {
    let (mut session, name) = without_pgcrypto(server, edition);
    let [owner, member, other] = ["owner", "member", "other"].map(|role| format!("{role}_{name}"));
    session
        .batch_execute(&format!(
            "CREATE ROLE {owner}; CREATE ROLE {member} IN ROLE {owner}; CREATE ROLE {other};
             GRANT CREATE ON DATABASE {name} TO {owner}, {member}, {other};
             SET ROLE {owner}; CREATE SCHEMA of_owner; SET search_path = of_owner"
        ))
        .unwrap();
    session.batch_execute(edition).expect("the file can be run");
    session
        .batch_execute("SELECT of_owner.snowflake_install(worker_id => 6); RESET ROLE; SET search_path = edition")
        .unwrap();
    // Whether the edition of each owner takes it: the superuser's, and the role's.
    let takes = |session: &mut Client| {
        ["postgres".to_owned(), owner.clone()].map(|role| {
            let schema = if role == owner { "of_owner" } else { "edition" };
            let made = session.batch_execute(&format!(
                "BEGIN; SET LOCAL ROLE {role}; SELECT {schema}.snowflake_new_public_key(), {schema}.snowflake_conceal(1, 'ord')"
            ));
            session.batch_execute("ROLLBACK").unwrap();
            let Err(error) = made else { return true };
            let refusal = refused::<()>(Err(error));
            assert_refused_as(&refusal, "0A000", "public ids need the extension \"pgcrypto\"");
            assert!(refusal.detail.unwrap().contains(&format!("\"{role}\"")));
            false
        })
    };
    for (role, taken) in
        [("postgres", [true, true]), (&owner, [false, true]), (&member, [false, true]), (&other, [false, false])]
    {
        // The extension is trusted, so a role that may create in the database can create it.
        let create = "CREATE SCHEMA of_crypto; CREATE EXTENSION pgcrypto SCHEMA of_crypto;
                      GRANT USAGE ON SCHEMA of_crypto TO PUBLIC";
        session.batch_execute(&format!("SET ROLE {role}; {create}; RESET ROLE")).unwrap();
        assert_eq!(takes(&mut session), taken, "{role}");
        session.batch_execute("ALTER SCHEMA of_crypto OWNER TO postgres").unwrap();
        assert_eq!(takes(&mut session), taken, "{role} owns the extension");
        session.batch_execute("DROP EXTENSION pgcrypto; CREATE EXTENSION pgcrypto SCHEMA of_crypto").unwrap();
        session.batch_execute(&format!("ALTER SCHEMA of_crypto OWNER TO {role}")).unwrap();
        assert_eq!(takes(&mut session), taken, "{role} owns the schema");
        session.batch_execute("DROP SCHEMA of_crypto CASCADE").unwrap();
    }
    session.batch_execute("CREATE EXTENSION pgcrypto SCHEMA public").unwrap();
    for (role, taken) in [("postgres", [true, true]), (&owner, [false, true]), (&other, [false, false])] {
        session.batch_execute(&format!("ALTER DATABASE {name} OWNER TO {role}")).unwrap();
        // From PostgreSQL 15 on, the schema public is of the database's owner.
        if cluster::postgres_version() >= 15 {
            assert_eq!(takes(&mut session), taken, "{role} owns the database");
        }
    }
}

fn keys_are_the_owners_alone(server: &Server, edition: &str) {
    let (mut session, name) = installed(server, edition);
    let role = format!("writer_{name}");
    session
        .batch_execute(&format!(
            "CREATE ROLE {role}; GRANT USAGE ON SCHEMA edition TO {role};
             ALTER DEFAULT PRIVILEGES IN SCHEMA edition GRANT ALL ON TABLES TO {role}, PUBLIC"
        ))
        .unwrap();
    let refused_to_read = |session: &mut Client| {
        session.batch_execute(&format!("SET ROLE {role}")).unwrap();
        for sql in [
            "SELECT * FROM snowflake_public_keys",
            "SELECT * FROM snowflake_public_keys()",
            "SELECT snowflake_new_public_key()",
            "SELECT _snowflake_encipher(1, 'ord')",
            "SELECT _snowflake_decipher('\\x00', 'ord')",
            "INSERT INTO snowflake_public_keys (fingerprint, first_id, key) VALUES ('a', 1, '\\x00')",
        ] {
            let refusal = refused(session.batch_execute(sql));
            let is_refused = refusal.sqlstate == "42501" || refusal.message.contains("was not made by");
            assert!(is_refused, "{sql}: {refusal:?}");
        }
        session.batch_execute("RESET ROLE").unwrap();
    };
    new_key(&mut session, &key(1));
    refused_to_read(&mut session);
    // Statistics hold no key either, which a dump may have without the table's rows.
    new_key(&mut session, &key(2));
    session.batch_execute("ANALYZE snowflake_public_keys").unwrap();
    let described = "SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_statistic, pg_attribute
                     WHERE starelid = 'snowflake_public_keys'::regclass AND attrelid = starelid AND attnum = staattnum";
    assert_eq!(session.value(described), "fingerprint first_id created_at");
    // It needs no right to use the keys.
    session.batch_execute(&format!("SET ROLE {role}")).unwrap();
    let token = conceal(&mut session, 7);
    assert_eq!(reveal(&mut session, &token), "7");
    session.batch_execute("RESET ROLE").unwrap();
    // A right to execute, which default privileges may give, is not enough.
    session.batch_execute(&format!("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA edition TO {role}")).unwrap();
    refused_to_read(&mut session);
    // What a restored dump may have given back.
    session.batch_execute(&format!("GRANT SELECT ON snowflake_public_keys TO {role}, PUBLIC")).unwrap();
    session.batch_execute("SELECT snowflake_install()").unwrap();
    refused_to_read(&mut session);
}

fn a_table_of_another_role_is_not_read(server: &Server, edition: &str) {
    let (mut session, name) = installed(server, edition);
    let role = format!("creator_{name}");
    session
        .batch_execute(&format!(
            "CREATE ROLE {role}; GRANT USAGE, CREATE ON SCHEMA edition TO {role};
             CREATE TABLE public.ran (by name); GRANT ALL ON public.ran TO PUBLIC;
             SET ROLE {role};
             CREATE FUNCTION edition.run() RETURNS bigint LANGUAGE sql AS
                 'INSERT INTO public.ran VALUES (current_user); SELECT -9223372036854775808';
             CREATE VIEW edition.snowflake_public_keys AS
                 SELECT 'a'::text AS fingerprint, edition.run() AS first_id, decode(repeat('00', 32), 'hex') AS key, now() AS created_at;
             GRANT ALL ON edition.snowflake_public_keys TO PUBLIC;
             RESET ROLE"
        ))
        .unwrap();
    let token = format!("ord_{}", "0".repeat(26));
    for call in
        ["snowflake_conceal(1, 'ord')", &format!("snowflake_reveal('{token}', 'ord')"), "snowflake_new_public_key()"]
    {
        let refusal = refused(session.batch_execute(&format!("SELECT {call}")));
        assert_refused_as(&refusal, "55000", "table \"snowflake_public_keys\" was not made by the SQL edition");
    }
    assert_eq!(session.value("SELECT count(*) FROM public.ran"), "0");
    session.batch_execute("DROP VIEW edition.snowflake_public_keys").unwrap();
    new_key(&mut session, "");
    session.batch_execute(&format!("ALTER TABLE snowflake_public_keys OWNER TO {role}")).unwrap();
    let refusal = refused(session.batch_execute("SELECT snowflake_conceal(1, 'ord')"));
    assert_eq!(refusal.sqlstate, "55000");
}

/// A dump over itself, and a subscription to FOR ALL TABLES whose subscriber has the key.
fn a_row_that_is_there_is_skipped(server: &Server, edition: &str) {
    let (mut session, _) = installed(server, edition);
    new_key(&mut session, &key(1));
    new_key(&mut session, &key(2));
    for role in ["origin", "replica"] {
        session.batch_execute(&format!("SET session_replication_role = {role}")).unwrap();
        let into = "INSERT INTO snowflake_public_keys (fingerprint, first_id, key)";
        let again = "INSERT INTO snowflake_public_keys SELECT * FROM snowflake_public_keys";
        assert_eq!(session.execute(again, &[]).unwrap(), 0);
        for other in [
            format!("SELECT 'other', first_id, {} FROM snowflake_public_keys", key(3)),
            "SELECT fingerprint, first_id + 1, key FROM snowflake_public_keys WHERE first_id < 0".to_owned(),
        ] {
            let refusal = refused(session.batch_execute(&format!("{into} {other}")));
            assert_eq!(refusal.sqlstate, "23505");
            // A constraint's words may come with the row, in the log of a subscription.
            assert!(refusal.message.starts_with("there is another key for public ids"), "{refusal:?}");
        }
    }
    assert_eq!(session.value("SELECT count(*) FROM snowflake_public_keys"), "2");
}

fn the_vaults_statements_make_the_same_keys(server: &Server, edition: &str) {
    let (mut session, _) = installed(server, edition);
    assert_eq!(session.value("SELECT count(*) FROM snowflake_public_keys()"), "0");
    new_key(&mut session, "");
    new_key(&mut session, &format!("{}, first_id => 1000, force => true", key(2)));
    let hour: i64 = session.value("SELECT snowflake_min(now() + interval '1 h')").parse().unwrap();
    new_key(&mut session, &format!("first_id => {hour}"));
    let rows = session.query("SELECT * FROM snowflake_public_keys()", &[]).unwrap();
    let statements: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    // A key that begins later is added in time, or refused.
    let forced: Vec<bool> = statements.iter().map(|statement| statement.contains("force => true")).collect();
    assert_eq!(forced, [true, true, false]);
    let held = "SELECT string_agg(fingerprint || first_id || encode(key, 'hex'), ' ' ORDER BY first_id) FROM snowflake_public_keys";
    let keys = session.value(held);
    let (mut other, _) = installed(server, edition);
    for session in [&mut other, &mut session] {
        session.batch_execute(&statements.concat()).unwrap();
        assert_eq!(session.value(held), keys);
    }
    for id in [i64::MIN, 999, 1000, hour, i64::MAX] {
        assert_eq!(conceal(&mut session, id), conceal(&mut other, id));
    }
}

fn calls_are_refused_in_these_words(server: &Server, edition: &str) {
    let (mut session, _) = installed(server, edition);
    let refusal = |session: &mut Client, call: &str, sqlstate: &str, message: &str| {
        let refusal = refused(session.batch_execute(&format!("SELECT {call}")));
        assert_refused_as(&refusal, sqlstate, message);
    };
    for (arguments, sqlstate, message) in [
        ("decode(repeat('00', 15), 'hex')", "22023", "key of 15 bytes is outside the range 16..64"),
        ("decode(repeat('00', 65), 'hex')", "22023", "key of 65 bytes is outside the range 16..64"),
        ("first_id => 1, for_all => true", "22023", "first_id 1 cannot be given for a key for all ids"),
    ] {
        refusal(&mut session, &format!("snowflake_new_public_key({arguments})"), sqlstate, message);
    }
    assert_eq!(session.value("SELECT to_regclass('snowflake_public_keys')"), "NULL");
    refusal(&mut session, "snowflake_conceal(1, 'ord')", "55000", "this database has no key for public ids");
    assert_eq!(session.value(&format!("SELECT snowflake_reveal('ord_{}', 'ord')", "0".repeat(26))), "NULL");
    new_key(&mut session, "");
    for prefix in ["", "_", "_ord", "ord_", "Ord", "ord1", "o-d", "ö", "ord\n", "abcdefghijklmnopq", "o d"] {
        let message = format!("\"{prefix}\" is not a prefix of public ids");
        for call in ["snowflake_conceal(1, '@')", "snowflake_reveal('', '@')", "snowflake_reveal('{}'::text[], '@')"] {
            refusal(&mut session, &call.replace('@', prefix), "22023", &message);
        }
    }
    for prefix in ["a", "a_b", "a__b", "abcdefghijklmnop"] {
        assert_eq!(
            session.value(&format!("SELECT snowflake_reveal(snowflake_conceal(1, '{prefix}'), '{prefix}')")),
            "1"
        );
    }
    let token = session.value("SELECT snowflake_conceal(1, 'usr')");
    for tokens in [format!("'{token}'"), format!("ARRAY[snowflake_conceal(1, 'ord'), '{token}']")] {
        let call = format!("SELECT snowflake_reveal({tokens}, 'ord', required => true)");
        let refusal = refused(session.batch_execute(&call));
        let message = "the text is not a public id of this database with the prefix \"ord\"";
        assert_refused_as(&refusal, "22023", message);
        assert!(!format!("{refusal:?}").contains(&token[4..]));
    }
    let nulls = "num_nulls(snowflake_conceal(NULL, 'ord'), snowflake_conceal(1, NULL), snowflake_reveal(NULL::text, 'ord', true),
        snowflake_reveal('', NULL), snowflake_reveal(NULL::text[], 'ord'))";
    assert_eq!(session.value(nulls), "5");
}

fn the_domain_shows_and_reads_tokens(server: &Server, edition: &str) {
    let (mut session, _) = installed(server, edition);
    new_key(&mut session, crate::public::KEY);
    crate::public::the_domain_shows_and_reads_tokens(&mut session);
}

#[test]
fn tokens_are_those_of_the_extension() {
    check(tokens_are_those_of_the_vectors);
}

#[test]
fn no_text_but_a_token_is_revealed() {
    check(no_other_text_is_a_token);
}

#[test]
fn a_collation_of_the_caller_changes_nothing() {
    check(a_collation_changes_no_token);
}

#[test]
fn each_id_keeps_its_token_when_keys_come_and_a_key_forges_only_its_range() {
    check(each_id_has_one_token);
}

#[test]
fn a_key_that_would_change_tokens_needs_force() {
    check(a_key_whose_range_has_begun_is_added_by_force_only);
}

#[test]
fn a_long_statement_sees_a_key_that_is_committed_meanwhile() {
    check(a_statement_sees_keys_that_are_committed_while_it_runs);
}

#[test]
fn with_one_snapshot_no_id_is_concealed_that_a_later_key_may_conceal() {
    check(a_transaction_with_one_snapshot_conceals_no_id_that_a_later_key_may_conceal);
}

#[test]
fn the_commit_of_a_key_that_comes_too_late_is_refused() {
    check(a_key_that_is_committed_too_late_is_refused);
}

#[test]
fn no_other_function_gets_a_key_whatever_its_name_and_the_search_path() {
    check(no_function_but_pgcryptos_gets_a_key);
}

#[test]
fn a_role_that_could_exchange_the_functions_of_pgcrypto_is_not_trusted() {
    check(no_role_that_could_exchange_pgcryptos_functions_is_trusted);
}

#[test]
fn no_role_but_the_owner_reads_or_makes_keys() {
    check(keys_are_the_owners_alone);
}

#[test]
fn a_table_or_view_that_another_role_has_made_is_not_read() {
    check(a_table_of_another_role_is_not_read);
}

#[test]
fn a_key_that_is_there_is_skipped_also_in_a_subscription() {
    check(a_row_that_is_there_is_skipped);
}

#[test]
fn statements_from_a_vault_make_the_same_keys() {
    check(the_vaults_statements_make_the_same_keys);
}

#[test]
fn wrong_calls_are_refused_and_no_error_shows_a_token() {
    check(calls_are_refused_in_these_words);
}

/// As on PostgreSQL 16 as the tests have it.
#[test]
fn without_pgcrypto_the_edition_draws_and_refuses_public_ids() {
    let server = Server::builder().without_preload().start();
    let (mut session, _) = without_pgcrypto(&server, EDITION);
    assert!(session.draw() > 0);
    for call in ["snowflake_new_public_key()", "snowflake_conceal(1, 'ord')"] {
        let refusal = refused(session.batch_execute(&format!("SELECT {call}")));
        assert_refused_as(&refusal, "0A000", "public ids need the extension \"pgcrypto\"");
        assert_eq!(refusal.hint.as_deref(), Some("Run CREATE EXTENSION pgcrypto."));
    }
    let token = format!("ord_{}", "0".repeat(26));
    assert_eq!(refused(session.batch_execute(&format!("SELECT snowflake_reveal('{token}', 'ord')"))).sqlstate, "0A000");
}

#[test]
fn a_condition_on_a_token_uses_the_primary_key_of_a_view_below_row_security_in_a_generic_plan() {
    let Some(server) = start() else { return };
    let (mut session, _) = installed(&server, EDITION);
    new_key(&mut session, &key(1));
    session
        .batch_execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, item text, owner text DEFAULT 'reader');
             INSERT INTO orders SELECT n, n::text FROM generate_series(1, 1000) n;
             ANALYZE orders;
             CREATE VIEW shown AS SELECT snowflake_conceal(id, 'ord') AS token, * FROM orders;
             CREATE ROLE reader;
             GRANT USAGE ON SCHEMA edition TO reader;
             GRANT SELECT ON orders, shown TO reader;
             ALTER TABLE orders ENABLE ROW LEVEL SECURITY;
             CREATE POLICY own ON orders USING (owner = current_user);
             SET plan_cache_mode = force_generic_plan;
             PREPARE by_token AS SELECT item FROM shown WHERE id = snowflake_reveal($1, 'ord');
             PREPARE by_tokens AS SELECT item FROM orders WHERE id = ANY (snowflake_reveal($1::text[], 'ord'))",
        )
        .unwrap();
    let token = conceal(&mut session, 500);
    for role in ["postgres", "reader"] {
        session.batch_execute(&format!("SET ROLE {role}")).unwrap();
        for call in [format!("EXECUTE by_token('{token}')"), format!("EXECUTE by_tokens(ARRAY['x', '{token}'])")] {
            let plan = plan(&mut session, &call);
            assert!(plan.contains("Index Cond: (") && plan.contains("snowflake_reveal("), "{plan}");
            let rows = session.query(&call, &[]).unwrap();
            assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<String>>(), ["500"]);
        }
    }
}

#[test]
fn a_parallel_query_conceals_and_reveals() {
    let Some(server) = start() else { return };
    let (mut session, _) = installed(&server, EDITION);
    new_key(&mut session, &key(1));
    session
        .batch_execute(
            "CREATE TABLE orders AS SELECT snowflake_next() AS id FROM generate_series(1, 500);
             ANALYZE orders;
             SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
             BEGIN;
             INSERT INTO orders VALUES (7)",
        )
        .unwrap();
    let query = "SELECT count(*) FROM orders WHERE snowflake_reveal(snowflake_conceal(id, 'ord'), 'ord', true) = id";
    let plan = explain(&mut session, "ANALYZE, TIMING OFF", query);
    assert!(plan.contains("Workers Launched: ") && !plan.contains("Workers Launched: 0"), "{plan}");
    assert_eq!(session.value(query), "501");
}

#[test]
fn the_domain_for_postgrest_is_that_of_the_extension() {
    check(the_domain_shows_and_reads_tokens);
}

/// What a restored dump and a copy must have to give the same tokens.
const KEYS: &str = "SELECT string_agg(concat_ws(' ', fingerprint, first_id, encode(key, 'hex'), created_at), ', ' \
                    ORDER BY first_id) FROM snowflake_public_keys";

#[test]
fn dumps_and_copies_by_template_have_the_keys_and_no_role_reads_them_that_did_not() {
    let Some(server) = start() else { return };
    let (mut session, name) = database(&server);
    // From PostgreSQL 14 on, a role may read all data.
    let may_read_all = cluster::postgres_version() >= 14;
    let roles: &[&str] = if may_read_all { &["postgres", "app", "reader"] } else { &["postgres", "app"] };
    let of_reader = if may_read_all { "IN ROLE pg_read_all_data" } else { "" };
    session
        .batch_execute(&format!(
            "CREATE ROLE app LOGIN; CREATE ROLE reader LOGIN {of_reader}; CREATE ROLE other LOGIN;
             CREATE EXTENSION pgcrypto SCHEMA public; CREATE SCHEMA edition AUTHORIZATION app;
             ALTER DATABASE {name} OWNER TO app; SET ROLE app"
        ))
        .unwrap();
    session.batch_execute(EDITION).unwrap();
    session.batch_execute("SELECT snowflake_install(worker_id => 5); GRANT USAGE ON SCHEMA edition TO other").unwrap();
    let dump = |user: &str, options: &[&str]| {
        let file = server.data_dir().with_file_name("dump.sql");
        let mut pg_dump = server.client("pg_dump");
        let output =
            pg_dump.args(["--username", user]).args(options).arg("--file").arg(&file).arg(&name).output().unwrap();
        if output.status.success() { Ok(file) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    };
    // Without a key, there is no table that a role could not dump. The sequence is the owner's.
    for role in roles {
        dump(role, &[]).unwrap();
    }
    new_key(&mut session, &key(1));
    new_key(&mut session, &key(2));
    session.batch_execute("RESET ROLE").unwrap();
    let token = conceal(&mut session, 7);
    let made = session.value(KEYS);
    let assert_has_keys = |copy: &mut Client, of: &str| {
        copy.batch_execute("SET search_path = edition, public").unwrap();
        assert_eq!(copy.value(KEYS), made, "{of}");
        assert_eq!(reveal(copy, &token), "7", "{of}");
        copy.batch_execute("SET ROLE other").unwrap();
        for sql in ["TABLE edition.snowflake_public_keys", "SELECT edition.snowflake_new_public_key()"] {
            assert_eq!(refused(copy.batch_execute(sql)).sqlstate, "42501", "{of}");
        }
        copy.batch_execute("RESET ROLE").unwrap();
        // Another key, and a row that is there.
        let owner = copy.value("SELECT relowner::regrole FROM pg_class WHERE relname = 'snowflake_public_keys'");
        copy.batch_execute(&format!("SET ROLE {owner}; SELECT snowflake_new_public_key()")).unwrap();
        copy.batch_execute("INSERT INTO snowflake_public_keys TABLE snowflake_public_keys; RESET ROLE").unwrap();
        assert_eq!(copy.value("SELECT count(*) FROM snowflake_public_keys"), "3", "{of}");
    };
    for role in roles {
        for options in [&[][..], &["--no-owner"], &["--no-privileges"], &["--no-owner", "--no-privileges"]] {
            let file = dump(role, options).unwrap();
            server.connect().batch_execute("CREATE DATABASE copy").unwrap();
            server.restore(&file, "copy", &[]);
            assert_has_keys(&mut server.connect_to("copy"), &format!("{role}, {options:?}"));
            server.connect().batch_execute("DROP DATABASE copy WITH (FORCE)").unwrap();
        }
    }
    let said = dump("other", &["--schema=edition", "--exclude-table=edition.snowflake_word"]).unwrap_err();
    assert!(said.contains("permission denied for table snowflake_public_keys"), "{said}");
    drop(session);
    server.connect().batch_execute(&format!("CREATE DATABASE copy TEMPLATE {name}")).unwrap();
    assert_has_keys(&mut server.connect_to("copy"), "a copy by template");
}

#[test]
fn a_subscription_to_all_tables_gets_the_keys() {
    let servers = [(); 2].map(|()| Server::builder().without_preload().config("wal_level", "logical").start());
    let [publisher, subscriber] = &servers;
    if !publisher.has_extension("pgcrypto") {
        return skip("pgcrypto is not installed");
    }
    let [mut session, mut there] = servers.each_ref().map(|server| {
        server.connect().batch_execute("ALTER DATABASE postgres SET search_path = edition, public").unwrap();
        let mut session = server.connect();
        session.batch_execute("CREATE EXTENSION pgcrypto SCHEMA public; CREATE SCHEMA edition").unwrap();
        session.batch_execute(EDITION).unwrap();
        session.batch_execute("SELECT snowflake_install(worker_id => 5)").unwrap();
        session
    });
    session.batch_execute("CREATE PUBLICATION p FOR ALL TABLES").unwrap();
    // The subscriber has the key first.
    new_key(&mut there, &key(1));
    new_key(&mut session, &key(1));
    let conninfo = publisher.conninfo().replace('\'', "''");
    subscriber
        .connect()
        .batch_execute(&format!("CREATE SUBSCRIPTION s CONNECTION '{conninfo}' PUBLICATION p"))
        .unwrap();
    wait_until("the table to be copied", || {
        there.value("SELECT count(*) = 1 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel") == "true"
    });
    new_key(&mut session, "");
    wait_until("the key", || there.value("SELECT count(*) FROM snowflake_public_keys") == "2");
    new_key(&mut session, "for_all => true");
    let token = conceal(&mut session, 7);
    wait_until("the key for all ids", || reveal(&mut there, &token) == "7");
    assert_eq!(there.value("SELECT count(*) FROM snowflake_public_keys"), "1");
}

/// What an edition does wrong, the changes of its text, and the check that finds it.
struct Lie {
    what: &'static str,
    changes: &'static [(&'static str, &'static str)],
    found_by: fn(&Server, &str),
}

/// What no check can find before PostgreSQL 15, where another role owns the schema.
const OF_PUBLIC: &str = "the owner of the database does not own its schema public";

const LIES: [Lie; 37] = [
    Lie {
        what: "zero bytes are not compared",
        changes: &[("WHERE substr(p.plain, 9) = decode('0000000000000000', 'hex')\n            AND", "WHERE")],
        found_by: no_other_text_is_a_token,
    },
    Lie {
        what: "the prefix is not in the HMAC",
        changes: &[(
            "decode('00', 'hex') || convert_to($2, 'UTF8')",
            "decode('00', 'hex') || substr(convert_to($2, 'UTF8'), 99)",
        )],
        found_by: tokens_are_those_of_the_vectors,
    },
    Lie {
        what: "the end of a key's range is not looked at",
        changes: &[("AND (p.next_id IS NULL OR i.id < p.next_id)", "")],
        found_by: each_id_has_one_token,
    },
    Lie {
        what: "the begin of a key's range is not looked at",
        changes: &[("AND i.id >= p.first_id AND", "AND")],
        found_by: each_id_has_one_token,
    },
    Lie {
        what: "the newest key conceals",
        changes: &[("WHERE k.first_id <= $1 ORDER BY", "ORDER BY")],
        found_by: each_id_has_one_token,
    },
    Lie {
        what: "a number above 128 bits is taken modulo 2^128",
        changes: &[("'^[0-7][0-9a-hjkmnp-tv-z]{25}$'", "'^[0-9a-hjkmnp-tv-z]{26}$'")],
        found_by: no_other_text_is_a_token,
    },
    Lie {
        what: "capitals are folded",
        changes: &[("word CONSTANT text COLLATE \"C\" := token", "word CONSTANT text COLLATE \"C\" := lower(token)")],
        found_by: no_other_text_is_a_token,
    },
    Lie {
        what: "texts are compared by the caller's collation",
        changes: &[
            ("start CONSTANT text COLLATE \"C\"", "start CONSTANT text"),
            ("word CONSTANT text COLLATE \"C\"", "word CONSTANT text"),
        ],
        found_by: a_collation_changes_no_token,
    },
    Lie {
        what: "conceals by the statement's snapshot",
        changes: &[(
            "_snowflake_encipher(id bigint, prefix text) RETURNS bytea\nLANGUAGE plpgsql VOLATILE",
            "_snowflake_encipher(id bigint, prefix text) RETURNS bytea\nLANGUAGE plpgsql STABLE",
        )],
        found_by: a_statement_sees_keys_that_are_committed_while_it_runs,
    },
    Lie {
        what: "reveals by the statement's snapshot",
        changes: &[(
            "_snowflake_decipher(block bytea, prefix text) RETURNS bigint\nLANGUAGE plpgsql VOLATILE",
            "_snowflake_decipher(block bytea, prefix text) RETURNS bigint\nLANGUAGE plpgsql STABLE",
        )],
        found_by: a_statement_sees_keys_that_are_committed_while_it_runs,
    },
    Lie {
        what: "a transaction's snapshot is not looked at",
        changes: &[("* 1000000)::bigint / 1000 + 1000\n", "* 1000000)::bigint / 1000 + 100000000\n")],
        found_by: a_transaction_with_one_snapshot_conceals_no_id_that_a_later_key_may_conceal,
    },
    Lie {
        what: "a key that is being committed is not thought of",
        changes: &[("* 1000000)::bigint / 1000 + 1000\n", "* 1000000)::bigint / 1000 + 10000\n")],
        found_by: a_transaction_with_one_snapshot_conceals_no_id_that_a_later_key_may_conceal,
    },
    Lie {
        what: "a late commit is not refused",
        changes: &[("AND @extschema@._snowflake_begins_too_soon(NEW.first_id)", "AND false")],
        found_by: a_key_that_is_committed_too_late_is_refused,
    },
    Lie {
        what: "a key that was forced is refused late",
        changes: &[("IF has_keys AND NOT is_for_all AND NOT is_forced THEN", "IF true THEN")],
        found_by: a_key_that_is_committed_too_late_is_refused,
    },
    Lie {
        what: "a new key begins at once",
        changes: &[("/ @unit_ms@) + 10000 / @unit_ms@ + 1;", "/ @unit_ms@) + 1;")],
        found_by: each_id_has_one_token,
    },
    Lie {
        what: "ids do not run ahead of the clock",
        changes: &[("(now_ms + @max_borrow@", "(now_ms")],
        found_by: a_key_whose_range_has_begun_is_added_by_force_only,
    },
    Lie {
        what: "a new key may begin before the last id",
        changes: &[("tick := greatest(tick, (now_ms", "tick := greatest(0, (now_ms")],
        found_by: each_id_has_one_token,
    },
    Lie {
        what: "keys that are made within a moment begin with the same id",
        changes: &[("WHERE k.first_id = new_first_id) LOOP", "WHERE false) LOOP")],
        found_by: each_id_has_one_token,
    },
    Lie {
        what: "no force is needed",
        changes: &[("ELSIF has_keys AND NOT is_forced AND", "ELSIF false AND")],
        found_by: a_key_whose_range_has_begun_is_added_by_force_only,
    },
    Lie {
        what: "the trigger is not ALWAYS",
        changes: &[("ENABLE ALWAYS TRIGGER", "ENABLE TRIGGER")],
        found_by: a_row_that_is_there_is_skipped,
    },
    Lie {
        what: "another key with the same first id is skipped",
        changes: &[("bool_and(k.first_id = $1 AND k.key = $2)", "bool_and(k.first_id = $1)")],
        found_by: a_row_that_is_there_is_skipped,
    },
    Lie {
        what: "another key is left to the constraint",
        changes: &[("IF NOT is_known THEN", "IF false THEN")],
        found_by: a_row_that_is_there_is_skipped,
    },
    Lie {
        what: "pgcrypto is found by the search path",
        changes: &[(
            "SELECT e.oid, quote_ident(n.nspname) INTO extension, schema",
            "SELECT e.oid, split_part(current_setting('search_path'), ',', 1) INTO extension, schema",
        )],
        found_by: no_function_but_pgcryptos_gets_a_key,
    },
    Lie {
        what: "functions in the schema of pgcrypto need not be its members",
        changes: &[("AND d.refobjid = extension AND d.deptype = 'e') <> 4 THEN", "AND false) < 0 THEN")],
        found_by: no_function_but_pgcryptos_gets_a_key,
    },
    Lie {
        what: "any role may own pgcrypto",
        changes: &[("AND pg_has_role(e.extowner, current_user, 'MEMBER')", "")],
        found_by: no_role_that_could_exchange_pgcryptos_functions_is_trusted,
    },
    Lie {
        what: "any role may own the schema of pgcrypto",
        changes: &[(
            "ELSE n.nspowner END, current_user, 'MEMBER')",
            "ELSE n.nspowner END, current_user, 'MEMBER') IS NOT NULL",
        )],
        found_by: no_role_that_could_exchange_pgcryptos_functions_is_trusted,
    },
    Lie {
        what: OF_PUBLIC,
        changes: &[(
            "CASE pg_get_userbyid(n.nspowner) WHEN 'pg_database_owner' THEN b.datdba ELSE n.nspowner END",
            "n.nspowner",
        )],
        found_by: no_role_that_could_exchange_pgcryptos_functions_is_trusted,
    },
    Lie {
        what: "the schema of pgcrypto is not quoted",
        changes: &[("quote_ident(n.nspname) INTO", "n.nspname INTO")],
        found_by: tokens_are_those_of_the_vectors,
    },
    Lie {
        what: "statistics hold the keys",
        changes: &[("ALTER COLUMN key SET STATISTICS 0", "ALTER COLUMN key SET STATISTICS 100")],
        found_by: keys_are_the_owners_alone,
    },
    Lie {
        what: "who made the table is not looked at",
        changes: &[("c.relkind <> 'r' OR pg_get_userbyid(c.relowner) <> current_user", "false")],
        found_by: a_table_of_another_role_is_not_read,
    },
    Lie {
        what: "default privileges stay",
        changes: &[(
            "AND a.grantee <> c.relowner\n        LOOP\n            EXECUTE format('REVOKE ALL ON TABLE",
            "AND false\n        LOOP\n            EXECUTE format('REVOKE ALL ON TABLE",
        )],
        found_by: keys_are_the_owners_alone,
    },
    Lie {
        what: "the installer leaves rights to the keys",
        changes: &[("to_regclass('@extschema@.snowflake_public_keys'))", "NULL)")],
        found_by: keys_are_the_owners_alone,
    },
    Lie {
        what: "the statements for the vault are made with the owner's rights",
        changes: &[(
            "snowflake_public_keys() RETURNS SETOF text\nLANGUAGE plpgsql VOLATILE",
            "snowflake_public_keys() RETURNS SETOF text\nLANGUAGE plpgsql SECURITY DEFINER VOLATILE",
        )],
        found_by: keys_are_the_owners_alone,
    },
    Lie {
        what: "the statements for the vault force all keys",
        changes: &[(
            "CASE WHEN @extschema@._snowflake_begins_too_soon(k.first_id) THEN ', force => true' END",
            "', force => true'",
        )],
        found_by: the_vaults_statements_make_the_same_keys,
    },
    Lie {
        what: "a text that is required is not",
        changes: &[("IF id IS NULL AND required THEN", "IF id IS NULL AND required IS NULL THEN")],
        found_by: calls_are_refused_in_these_words,
    },
    Lie {
        what: "the domain's functions call any function of that name",
        changes: &[("$1::pg_catalog.int8", "$1")],
        found_by: the_domain_shows_and_reads_tokens,
    },
    Lie {
        what: "a key of any length is taken",
        changes: &[("ELSIF octet_length(new_key) NOT BETWEEN 16 AND 64 THEN", "ELSIF false THEN")],
        found_by: calls_are_refused_in_these_words,
    },
];

#[test]
fn each_lie_is_found() {
    let Some(server) = start() else { return };
    let lies = LIES.into_iter().filter(|lie| lie.what != OF_PUBLIC || cluster::postgres_version() >= 15);
    for Lie { what, changes, found_by } in lies {
        let mut edition = EDITION.to_owned();
        for (from, to) in changes {
            assert!(edition.contains(from), "{what}: the edition has no {from}");
            edition = edition.replace(from, to);
        }
        let found = catch_unwind(AssertUnwindSafe(|| found_by(&server, &edition)));
        let Err(panic) = found else { panic!("no check finds that {what}") };
        // Not because the changed file cannot be run.
        let message = panic.downcast_ref::<String>().map_or("", String::as_str);
        assert!(!message.contains("the file can be run"), "{what}: {message}");
        println!("{what}: {message}");
    }
}

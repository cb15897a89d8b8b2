//! Generated columns over the extension's functions. They are stored ones: the virtual ones of
//! PostgreSQL 18, which are the default kind there, may call PostgreSQL's own functions only.

use cluster::pages::block;
use cluster::{Server, postgres_version, refused};

#[test]
fn a_generated_column_that_calls_the_extension_has_to_be_stored() {
    let server = Server::builder().config("snowflake_id.worker_id", "5").start_with_extension();
    let mut session = server.connect();
    for example in [block("generated-time"), block("generated-text")] {
        let (table, _) = example.split_once(';').expect("a statement ends");
        assert_eq!(table.matches(" STORED").count(), 1, "{table}");
        for kind in ["", " VIRTUAL"] {
            let refusal = refused(session.batch_execute(&table.replace(" STORED", kind)));
            // Version 18 brought virtual columns.
            let (sqlstate, words) =
                if postgres_version() < 18 { ("42601", "syntax error") } else { ("0A000", "user-defined function") };
            assert!(refusal.sqlstate == sqlstate && refusal.message.contains(words), "{refusal:?}");
        }
        session.batch_execute(table).unwrap();
    }
}

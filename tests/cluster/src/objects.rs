//! What the extension consists of in a database, object by object, so that a test can compare two
//! ways to get there: an update and a new installation (`upgrade.rs`), the install script and the
//! one that is generated from the Rust code (`install_script.rs`).

use postgres::Client;

use crate::plans::rows;
use crate::server::Server;

/// Describes a database's extension: `\dx+`, and everything that the catalogs hold about its
/// objects.
///
/// It knows views and sequences. If the extension gets other relations, this fails until they are
/// added here.
///
/// # Panics
///
/// Panics if the extension has a relation of another kind.
#[must_use]
#[track_caller]
pub fn description(server: &Server, database: &str, session: &mut Client) -> Vec<String> {
    const ACL: &str =
        "coalesce((SELECT string_agg(item::text, ' ' ORDER BY item::text) FROM unnest({}) item), 'default')";
    let acl = |column: &str| ACL.replace("{}", column);
    let members = "member AS (
        SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
        WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'snowflake_id')";
    let queries = [
        "SELECT 'extension', extversion, extowner::regrole, extnamespace::regnamespace, extrelocatable,
                obj_description(oid, 'pg_extension')
         FROM pg_extension WHERE extname = 'snowflake_id'"
            .to_owned(),
        "SELECT 'carried by dumps', config.relation::regclass, config.condition
         FROM pg_extension, unnest(extconfig, extcondition) config (relation, condition)
         WHERE extname = 'snowflake_id' ORDER BY config.relation::regclass::text"
            .to_owned(),
        format!(
            "WITH {members}
             SELECT 'object', object.type, object.identity, 'comment', obj_description(m.objid, m.classid::regclass::name)
             FROM member m, pg_identify_object(m.classid, m.objid, 0) object ORDER BY object.type, object.identity"
        ),
        format!(
            "WITH {members}
             SELECT 'rights at first', object.type, object.identity, i.objsubid, i.privtype, {}
             FROM pg_init_privs i JOIN member m ON m.classid = i.classoid AND m.objid = i.objoid,
                 pg_identify_object(i.classoid, i.objoid, 0) object
             ORDER BY object.type, object.identity, i.objsubid",
            acl("i.initprivs")
        ),
        format!(
            "WITH {members}
             SELECT 'schema', n.nspname, n.nspowner::regrole, {}
             FROM pg_namespace n JOIN member m ON m.classid = 'pg_namespace'::regclass AND m.objid = n.oid",
            acl("n.nspacl")
        ),
        format!(
            "WITH {members}
             SELECT 'function', p.proowner::regrole, {}, pg_get_functiondef(p.oid)
             FROM pg_proc p JOIN member m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
             ORDER BY p.oid::regprocedure::text",
            acl("p.proacl")
        ),
        format!(
            "WITH {members}
             SELECT 'relation', c.oid::regclass, c.relkind, c.relpersistence, c.relowner::regrole, c.reloptions, {},
                 CASE c.relkind WHEN 'v' THEN pg_get_viewdef(c.oid)
                                WHEN 'S' THEN (SELECT (s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmax, s.seqmin,
                                                       s.seqcache, s.seqcycle)::text
                                               FROM pg_sequence s WHERE s.seqrelid = c.oid)
                                WHEN 'r' THEN (SELECT string_agg(pg_get_indexdef(i.indexrelid), '; ' ORDER BY i.indexrelid)
                                               FROM pg_index i WHERE i.indrelid = c.oid)
                                ELSE 'unknown' END
             FROM pg_class c JOIN member m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid
             ORDER BY c.oid::regclass::text",
            acl("c.relacl")
        ),
        format!(
            "WITH {members}
             SELECT 'column', a.attrelid::regclass, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                 a.attcollation::regcollation, {}, col_description(a.attrelid, a.attnum)
             FROM pg_attribute a JOIN member m ON m.classid = 'pg_class'::regclass AND m.objid = a.attrelid
             WHERE a.attnum > 0 ORDER BY a.attrelid::regclass::text, a.attnum",
            acl("a.attacl")
        ),
    ];
    let mut description: Vec<_> =
        queries.iter().flat_map(|query| rows(session, query).expect("the catalogs have these columns")).collect();
    let mut psql = server.client("psql");
    let listed = psql.args(["--no-psqlrc", "--command", r"\dx+ snowflake_id", database]).output().expect("psql runs");
    assert!(listed.status.success(), "{listed:?}");
    description.extend(String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned));

    let other = description.iter().find(|line| line.starts_with("relation|") && line.ends_with("|unknown"));
    assert_eq!(other, None, "the description has to learn of this kind of relation");
    description
}

/// Returns the lines that only one of two descriptions has, after "-" those of the first.
#[must_use]
pub fn differences(old: &[String], new: &[String]) -> Vec<String> {
    let only = |sign: &str, these: &[String], those: &[String]| -> Vec<String> {
        these.iter().filter(|line| !those.contains(line)).map(|line| format!("{sign} {line}")).collect()
    };
    [only("-", old, new), only("+", new, old)].concat()
}

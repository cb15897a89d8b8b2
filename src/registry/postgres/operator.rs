//! What is asked beside reading and swapping, by operators only: the registry itself, fleets, and
//! what people read and the protocol does not.
//!
//! These statements run in the operator's own session, whose path may have any schema. So they name
//! the schema of each function, and their parameters have types.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};

use serde_json::{Value, json};
use snowflake_core::fleet::registry::{Fleet, Incarnation, NumberKey};
use snowflake_core::fleet::tag::Tag;

use super::record::{DescriptionRow, NumberName, RegistryRow, StandbysRow};
use super::{Postgres, each, garbage, only, text};
use crate::config::{Config, MemberName};
use crate::connection::{PostgresConnection, Waiter};
use crate::conninfo::{Host, Options};
use crate::error::{Diagnostic, RegistryError};
use crate::record;
use crate::registry::{HostSeen, Registry, Standbys};
use crate::step::RegistryStep;

/// The file that makes a registry.
pub const REGISTRY_SQL: &str = include_str!("../../../sql/registry.sql");

// Two servers with the same files have not started in the same microsecond.
const WRITABLE: &CStr = c"SELECT pg_catalog.to_json(CASE pg_catalog.current_setting('transaction_read_only') \
WHEN 'off' THEN pg_catalog.concat((pg_catalog.pg_control_system()).system_identifier, ' ', \
pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time())) END)";

// To a role without pg_monitor, all but the processes is NULL.
const STANDBYS: &CStr = c"SELECT pg_catalog.row_to_json(s) FROM (\
SELECT pg_catalog.current_setting('synchronous_standby_names') AS names, pg_catalog.count(*) AS connected, \
pg_catalog.count(sync_state) AS visible, \
pg_catalog.count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) AS synchronous \
FROM pg_catalog.pg_stat_replication) AS s";

const MAKERS: &CStr = c"SELECT pg_catalog.to_json(m.maker) FROM snowflake_registry.makers() AS m (maker)";

// A row that is locked is skipped. A lock is kept no longer than this statement, which waits for no
// standby.
const HELD_PARTS: &CStr = c"WITH free AS (SELECT s.part FROM snowflake_registry.new_numbers s, \
pg_catalog.set_config('synchronous_commit', 'off', true) \
WHERE s.fleet = $1::pg_catalog.text FOR UPDATE OF s SKIP LOCKED) \
SELECT pg_catalog.to_json(n.part) FROM snowflake_registry.new_numbers n \
WHERE n.fleet = $1::pg_catalog.text AND n.part NOT IN (SELECT free.part FROM free)";

// Of roles of servers, which any of them may have set for itself.
const ROLE_SETTINGS: &CStr = c"SELECT pg_catalog.to_json(pg_catalog.concat(pg_catalog.quote_ident(r.rolname), \
CASE WHEN d.datname IS NOT NULL THEN ' IN DATABASE ' OPERATOR(pg_catalog.||) pg_catalog.quote_ident(d.datname) END, \
': ', l.line)) \
FROM pg_catalog.pg_db_role_setting s JOIN pg_catalog.pg_roles r ON r.oid = s.setrole \
LEFT JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase, pg_catalog.unnest(s.setconfig) AS l (line), \
pg_catalog.pg_proc p \
WHERE p.pronamespace = pg_catalog.to_regnamespace('snowflake_registry') AND p.proname = 'swap' \
AND (s.setdatabase = 0 OR d.datname = pg_catalog.current_database()) \
AND pg_catalog.has_function_privilege(r.oid, p.oid, 'EXECUTE') \
AND NOT pg_catalog.pg_has_role(r.oid, p.proowner, 'MEMBER')";

const NOW: &CStr = c"SELECT snowflake_registry.shown()";

const CREATE_FLEET: &CStr = c"INSERT INTO snowflake_registry.fleets \
SELECT r.* FROM snowflake_registry.begin_change($1, 'operator') AS b, \
pg_catalog.jsonb_populate_record(NULL::snowflake_registry.fleets, $2) AS r \
ON CONFLICT (name) DO NOTHING RETURNING 1";

const FLEETS: &CStr = c"SELECT pg_catalog.to_json(name) FROM snowflake_registry.fleets ORDER BY name";

// Texts are as long as all of them together have room in an answer, where a thief has made them as
// long as can be: a character may take six bytes of JSON.
const NAMES: &CStr = c"SELECT pg_catalog.row_to_json(r) FROM (\
SELECT n.datacenter, n.worker, pg_catalog.left(n.host, m.most) AS host, n.port, \
pg_catalog.left(n.cluster_name, m.most) AS cluster_name, pg_catalog.left(n.version, m.most) AS version \
FROM snowflake_registry.numbers n CROSS JOIN (\
SELECT LEAST(255, GREATEST(20, 2000000 / GREATEST(pg_catalog.count(*), 1)))::pg_catalog.int4 AS most \
FROM snowflake_registry.numbers WHERE fleet = $1::pg_catalog.text) m \
WHERE n.fleet = $1::pg_catalog.text) AS r";

const DESCRIPTIONS: &CStr = c"SELECT pg_catalog.row_to_json(r) FROM (\
SELECT tag, description FROM snowflake_registry.tags \
WHERE fleet = $1::pg_catalog.text AND description IS NOT NULL) AS r";

const DESCRIBE_TAG: &CStr = c"UPDATE snowflake_registry.tags \
SET description = $4 FROM snowflake_registry.begin_change($1, 'operator') AS b \
WHERE fleet = $2::pg_catalog.text AND tag = $3::pg_catalog.text RETURNING 1";

// A number's last lease has no end in the history.
const PRUNE: &CStr = c"WITH pruned AS (\
DELETE FROM snowflake_registry.history USING snowflake_registry.begin_change($1, 'operator') AS b \
WHERE fleet = $2::pg_catalog.text AND until_ms < $3::pg_catalog.int8 RETURNING 1) \
SELECT pg_catalog.count(*) FROM pruned";

impl<W: Waiter> Registry for Postgres<W> {
    fn config(&self) -> &Config {
        &self.config
    }

    fn connection_id(&self) -> Option<i32> {
        self.connection.borrow().as_ref().map(PostgresConnection::backend_pid)
    }

    fn disconnect(&self) {
        self.connection.replace(None);
    }

    fn create(&self, owner: Option<&str>) -> Result<Vec<Diagnostic>, RegistryError> {
        // In one message with the file, because a pooler may lie between.
        let set_owner = owner.map(|owner| format!("SET LOCAL snowflake_registry.owner = {};\n", literal(owner)));
        let script = CString::new(set_owner.unwrap_or_default() + REGISTRY_SQL)
            .map_err(|_| garbage("a role's name with a character NUL"))?;
        let step = RegistryStep::Change;
        let kept = self.connection.take();
        let made = kept.map_or_else(|| self.connect(), Ok).and_then(|mut connection| {
            let notices = connection.run_script(&script, step, self.config.timeout)?;
            self.connection.replace(Some(connection));
            Ok(notices)
        });
        made.map_err(|error| self.explain(error))
    }

    fn now(&self) -> Result<(Incarnation, i64), RegistryError> {
        let answer = self.run(NOW, &[], RegistryStep::Read)?;
        let registry: RegistryRow = self.understood(only(&answer.rows))?;
        Ok((registry.incarnation(), registry.now_ms))
    }

    fn create_fleet(&self, fleet: &Fleet) -> Result<bool, RegistryError> {
        let (incarnation, _) = self.now()?;
        let mut record = Value::Object(record::fleet(&Fleet { incarnation, ..*fleet }));
        record["name"] = json!(self.config.fleet);
        let rows = self.change(CREATE_FLEET, &[self.patience_ms(), text(record)], RegistryStep::Change)?;
        Ok(rows.len() == 1)
    }

    fn fleets(&self) -> Result<Vec<String>, RegistryError> {
        let answer = self.run(FLEETS, &[], RegistryStep::Read)?;
        self.understood(each(&answer.rows))
    }

    fn names(&self) -> Result<BTreeMap<NumberKey, MemberName>, RegistryError> {
        let answer = self.run(NAMES, &[text(&self.config.fleet)], RegistryStep::Read)?;
        let numbers: Vec<NumberName> = self.understood(each(&answer.rows))?;
        Ok(numbers.iter().map(NumberName::key).zip(self.understood(each::<MemberName>(&answer.rows))?).collect())
    }

    fn descriptions(&self) -> Result<BTreeMap<Tag, String>, RegistryError> {
        let answer = self.run(DESCRIPTIONS, &[text(&self.config.fleet)], RegistryStep::Read)?;
        let rows: Vec<DescriptionRow> = self.understood(each(&answer.rows))?;
        let understood = |row: DescriptionRow| Some((Tag::new(&row.tag).ok()?, row.description));
        Ok(rows.into_iter().filter_map(understood).collect())
    }

    fn describe_tag(&self, tag: Tag, description: &str) -> Result<bool, RegistryError> {
        let description = Some(description).filter(|description| !description.is_empty()).and_then(text);
        let values = [self.patience_ms(), text(&self.config.fleet), text(tag), description];
        Ok(self.change(DESCRIBE_TAG, &values, RegistryStep::Change)?.len() == 1)
    }

    fn standbys(&self) -> Result<Option<Standbys>, RegistryError> {
        let answer = self.run(STANDBYS, &[], RegistryStep::Read)?;
        let StandbysRow { names, connected, visible, synchronous } = self.understood(only(&answer.rows))?;
        Ok(Some(Standbys { names, connected: (visible == connected).then_some((connected, synchronous)) }))
    }

    fn hosts(&self) -> Result<Vec<HostSeen>, RegistryError> {
        if self.connection.borrow().is_none() {
            self.now()?;
        }
        let hosts = self.connection.borrow().as_ref().map(PostgresConnection::hosts).unwrap_or_default();
        if hosts.len() < 2 {
            return Ok(Vec::new());
        }
        let options = Options::parse(&self.config.conninfo).map_err(RegistryError::Connect)?;
        let options = options.with_defaults().without_ignored_passfile().0.with_any_session();
        let seen = |host: Host| {
            let alone = options.with_hosts(std::slice::from_ref(&host));
            let writable = PostgresConnection::open(&alone, self.config.timeout, &self.waiter)
                .and_then(|mut host| only(&host.run(WRITABLE, &[], RegistryStep::Read, self.config.timeout)?.rows));
            HostSeen { host: format!("{}:{}", host.name, host.port), writable }
        };
        Ok(hosts.into_iter().map(seen).collect())
    }

    fn role_settings(&self) -> Result<Vec<String>, RegistryError> {
        let answer = self.run(ROLE_SETTINGS, &[], RegistryStep::Read)?;
        self.understood(each(&answer.rows))
    }

    fn makers(&self) -> Result<Vec<String>, RegistryError> {
        let answer = self.run(MAKERS, &[], RegistryStep::Read)?;
        self.understood(each(&answer.rows))
    }

    fn held_parts(&self) -> Result<Vec<i64>, RegistryError> {
        let answer = self.run(HELD_PARTS, &[text(&self.config.fleet)], RegistryStep::Change)?;
        self.understood(each(&answer.rows))
    }

    fn prune(&self, before_ms: i64) -> Result<u64, RegistryError> {
        let values = [self.patience_ms(), text(&self.config.fleet), text(before_ms)];
        let rows = self.change(PRUNE, &values, RegistryStep::Change)?;
        self.understood(only(&rows))
    }
}

/// Returns a text as a literal of SQL.
fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    // Without the E, a setting says what a backslash means.
    if quoted.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_format_of_this_crate() {
        let format = crate::FORMAT;
        for says in [
            format!("'SELECT {format}' THEN"),
            format!("file is for version {format}'"),
            format!("AS 'SELECT {format}';"),
        ] {
            assert_eq!(REGISTRY_SQL.matches(&says).count(), 1, "{says}");
        }
    }

    #[test]
    fn a_literal_ends_where_its_text_ends() {
        for (text, sql) in [("dba", "'dba'"), ("the 'dba'", "'the ''dba'''"), ("a\\'b", "E'a\\\\''b'")] {
            assert_eq!(literal(text), sql);
        }
    }
}

//! The SQL edition in a database: its file, run as a migration tool runs it, and its installer.

use postgres::{Client, Error};

/// The built file.
pub const EDITION: &str = include_str!("../../../sql/snowflake_id-sql.sql");

/// A session that installs the SQL edition.
pub trait Edition {
    /// Runs the file in a schema, which it creates if it does not exist.
    ///
    /// # Errors
    ///
    /// Whatever the server says.
    fn load_edition(&mut self, schema: &str) -> Result<(), Error>;

    /// Runs the file in a schema, and installs with these arguments. The session's `search_path` is
    /// then that schema.
    ///
    /// # Panics
    ///
    /// Panics if the server refuses.
    fn install_edition(&mut self, schema: &str, arguments: &str);
}

impl Edition for Client {
    fn load_edition(&mut self, schema: &str) -> Result<(), Error> {
        let exists = self.query_opt("SELECT FROM pg_namespace WHERE nspname = $1", &[&schema])?.is_some();
        if !exists {
            self.batch_execute(&format!("CREATE SCHEMA \"{schema}\""))?;
        }
        self.batch_execute(&format!("SET search_path = \"{schema}\""))?;
        self.batch_execute(EDITION)
    }

    #[track_caller]
    fn install_edition(&mut self, schema: &str, arguments: &str) {
        self.load_edition(schema).expect("the file can be run");
        let install = format!("SELECT \"{schema}\".snowflake_install({arguments})");
        self.batch_execute(&install).expect("the arguments are right");
    }
}

//! Where a registry is, and which server or operator asks it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where the registry is, and which server or operator this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// A connection string or URI of libpq's.
    pub conninfo: String,
    /// The fleet's name.
    pub fleet: String,
    /// What operators know this server by.
    pub member: MemberName,
    /// A random number of this life of shared memory, which no other server knows, and no reading
    /// shows. In PostgreSQL, only with it can what this server has written be renewed or given
    /// back. An operator needs none.
    pub secret: u128,
    /// Whether this is an operator, and not a server.
    pub operator: bool,
    /// How long each step may take: connecting to one host, and each statement.
    pub timeout: Duration,
}

/// What operators know a server by. The registry shows it, and decides nothing by it. These are
/// fields of a number's record, which may lack them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberName {
    /// The name of the host.
    pub host: String,
    /// The port of the server.
    pub port: u16,
    /// `cluster_name`.
    pub cluster_name: String,
    /// The extension's version.
    pub version: String,
}

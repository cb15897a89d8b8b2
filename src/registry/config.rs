//! Where a registry is, and which server asks it.

use std::time::Duration;

/// Where the registry is, and which server this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// A connection string or URI of libpq's.
    pub conninfo: String,
    /// The fleet's name.
    pub fleet: String,
    /// The datacenter, where the layout has that field. Numbers are leased in each of its own.
    pub datacenter: Option<i64>,
    /// What operators know this server by.
    pub member: MemberName,
    /// How long each step may take: connecting to one host, and each statement.
    pub timeout: Duration,
}

/// What operators know a server by. The registry shows it, and decides nothing by it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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

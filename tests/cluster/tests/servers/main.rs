//! The tests that need whole servers, in one program: they share a pool of threads, the template of
//! a data directory, and what is linked. The head of each file says what it shows.
//!
//! `cargo test -p cluster --test servers mark::` runs those of one file. A test belongs here unless
//! it needs a process of its own, as `control.rs` does, which knows another installation.

/// Makes a test of each of these functions of a file for each kind of registry. The file makes them
/// by `postgres` and `etcd`.
macro_rules! for_each_kind {
    ($($test:ident)*) => {
        mod in_postgres {
            $(#[test] fn $test() { super::$test(&super::postgres()); })*
        }
        mod in_etcd {
            $(#[test] fn $test() {
                if !cluster::has_etcd() {
                    return cluster::skip("etcd and etcdctl are not installed");
                }
                super::$test(&super::etcd());
            })*
        }
    };
}

mod advance;
mod batch;
mod callbacks;
mod chaos;
mod clients;
mod clock;
mod clock_jump;
mod concurrency;
mod configuration;
mod convert;
mod crash;
mod decode;
mod differential;
mod disk_full;
mod domain;
mod edition;
mod edition_faults;
mod edition_moves;
mod edition_public;
mod edition_read;
mod edition_settled;
mod etcd_tags;
mod extension_path;
mod failover;
mod fleet;
mod fleet_faults;
mod fleet_operate;
mod fleet_security;
mod generated_columns;
mod harness;
mod identity;
mod interrupts;
mod kubernetes;
mod lease_limits;
mod leaving;
mod lifecycle;
mod lives;
mod mark;
mod memory;
mod monitoring;
mod operator;
mod pages;
mod partitions;
mod partman;
mod patroni;
mod pg_upgrade;
mod plan_schema;
mod poolers;
mod preload;
mod public;
mod public_keys;
mod published_sequences;
mod pushdown;
mod pushdown_depth;
mod pushdown_forms;
mod pushdown_hooks;
mod pushdown_indexes;
mod pushdown_lifecycle;
mod pushdown_order;
mod pushdown_security;
mod quickstart;
mod recipes;
mod registry;
mod registry_etcd;
mod registry_tags;
mod regress;
mod restarts;
mod restore;
mod scale;
mod segments;
mod segments_convert;
mod segments_fleet;
mod settled;
mod statistics;
mod store;
mod store_etcd;
mod store_postgres;
mod timescaledb;
mod two_fleets;
mod upgrade;
mod waiting;
mod widen;
mod writers;

// From the simulation: the same numbers for the same seed, on every machine.
#[allow(dead_code, reason = "the core's tests use all of it")]
#[path = "../../../../src/core/tests/kit/random.rs"]
mod random;

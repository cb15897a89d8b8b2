//! The fakes of the core's tests: a registry, a server, an operator, and a process that stops after
//! each call. Also random numbers that are the same in each run.

#![allow(dead_code, reason = "no test uses all of it")]

pub mod fake;
pub mod operator;
pub mod random;
pub mod registry;
pub mod server;
pub mod stepped;

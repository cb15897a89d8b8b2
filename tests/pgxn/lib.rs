//! Nothing: the test is in `tests`. It is a crate of its own, so that other tests need not compile
//! PGXN's check.

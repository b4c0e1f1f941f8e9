//! What must not break it, broken on purpose: every test is a row of the list of faults.
//!
//! A row prints one line: fault, decisions made, p99.9, longest, time to heal, counted twice, counted
//! after refusal, over-admitted. Counts are asserted exactly; times generously, because machines that
//! run tests are busy.

mod apart;
mod auth;
mod callers;
mod clock;
mod cluster;
mod corrupt;
mod errors;
mod existing;
mod instance;
mod local;
mod log;
mod memory;
mod network;
mod overload;
mod process;
mod redirect;
mod replies;
mod scripts;
mod sentinel;
mod several_keys;
mod slow;

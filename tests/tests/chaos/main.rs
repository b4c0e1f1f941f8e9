//! What must not break it, broken on purpose: every test is a row of the list of faults.
//!
//! A row prints one line: fault, decisions made, p99.9, longest, time to heal, counted twice, counted
//! after refusal, over-admitted. Counts are asserted exactly; times generously, because machines that
//! run tests are busy.

mod auth;
mod clock;
mod cluster;
mod continued;
mod corrupt;
mod cross_slot;
mod dropped_callers;
mod errors;
mod external_connection;
mod fairness;
mod far;
mod harness;
mod late_replies;
mod local_fallback;
mod log;
mod memory;
mod network;
mod overload;
mod prefetch;
mod process;
mod redirect;
mod replies;
mod scripts;
mod sentinel;
mod several_keys;
mod slow;

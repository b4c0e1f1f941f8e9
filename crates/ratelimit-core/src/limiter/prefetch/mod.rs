//! Prefetching: hot keys are decided from memory, with units that the store has charged before.

mod sizing;
mod slice;

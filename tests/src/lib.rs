//! What the tests over several crates share.

pub mod model;

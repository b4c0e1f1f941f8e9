//! Instructions, as valgrind's callgrind counts them.

mod dump;
mod program;
mod redis;

pub(crate) use self::dump::{Dumps, LAUNCHER};
#[cfg(feature = "peers")]
pub(crate) use self::redis::SCRIPTS_A_COLLECTION;
pub use self::{
    program::{count, tell_counts},
    redis::CountedServer,
};

/// A count as a number that can be divided.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub(crate) const fn exact(count: u64) -> f64 {
    count as f64
}

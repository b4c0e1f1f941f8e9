//! Log lines that appear once per process.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Mutex, PoisonError},
};

/// The number of lines that are remembered. Further lines are not logged.
const MAX_LINES: usize = 1_000;

/// Digests of the lines that were logged.
static LOGGED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// Whether `line` about `policy` was not logged before.
///
/// A router puts its layer over each route, and actix-web makes the layer of each worker anew, so a flag
/// in the layer would not do.
pub(crate) fn is_first(policy: &str, line: &str) -> bool {
    let mut hasher = DefaultHasher::new();
    (policy, line).hash(&mut hasher);
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    logged.len() < MAX_LINES && logged.insert(hasher.finish())
}

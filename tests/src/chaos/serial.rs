//! One test at a time, where a runner puts several into one process.

use tokio::sync::{Mutex, MutexGuard};

/// Held while a test breaks things, so that what it measures of the process is its own doing.
pub type SerialGuard = MutexGuard<'static, ()>;

/// Waits until no other test of this process breaks things.
pub async fn serial() -> SerialGuard {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

//! A background task that runs while its owner lives.

use std::{
    future::Future,
    sync::{Mutex, PoisonError},
};

use tokio::{runtime::Handle, task::JoinHandle};

use crate::meter;

/// A task that is started when needed, started again when it ended, and ends with its owner.
#[derive(Debug, Default)]
pub(super) struct Background(Mutex<Option<JoinHandle<()>>>);

impl Background {
    /// Starts the task on the caller's runtime, unless it runs already.
    ///
    /// A task ends with the runtime that it was started on, or when it panics.
    pub(super) fn see_to<F>(&self, start: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut task = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if task.is_some() {
            meter::task_restarted();
        }
        *task = Some(runtime.spawn(start()));
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let task = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task {
            task.abort();
        }
    }
}

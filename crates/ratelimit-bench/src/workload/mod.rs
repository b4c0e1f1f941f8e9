//! Workloads: closures that are measured many times.

pub mod fallback;
pub mod layer;
pub mod memory;
pub mod prefetch;

use std::{
    fmt,
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

/// Something to do many times, and its name.
pub struct Work {
    /// Name in words joined by dots.
    pub name: String,
    /// Does it once.
    pub once: Box<dyn FnMut()>,
}

impl Work {
    /// A work of that name.
    pub fn new(name: impl Into<String>, once: impl FnMut() + 'static) -> Work {
        Work {
            name: name.into(),
            once: Box::new(once),
        }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Work").field(&self.name).finish()
    }
}

/// The answer of a future that has it at once, as all that is decided in memory has.
///
/// # Panics
///
/// When it has not.
pub fn poll_now<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("memory answers at once"),
    }
}

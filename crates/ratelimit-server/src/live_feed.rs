//! The feed of live numbers: one sample a second, for all viewers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use metrics::gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::{metrics::LIVE_VIEWERS, session_cookie::unix_seconds};

/// The most viewers at a time.
pub(crate) const MAX_VIEWERS: usize = 32;

/// Hands each tick to all viewers.
///
/// The feed holds the newest tick only: a viewer that is late gets that one, so a slow viewer neither delays others nor costs
/// memory.
pub(crate) struct LiveFeed {
    /// Unix seconds.
    pub(crate) started_at: u64,
    ticks: watch::Sender<LiveTick>,
    places: Arc<Semaphore>,
    is_sampled: AtomicBool,
}

/// The numbers of one second, as JSON.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveTick {
    /// Unix seconds.
    pub(crate) at: u64,
    pub(crate) json: Arc<str>,
}

impl Default for LiveFeed {
    fn default() -> LiveFeed {
        LiveFeed {
            started_at: unix_seconds(),
            ticks: watch::Sender::default(),
            places: Arc::new(Semaphore::new(MAX_VIEWERS)),
            is_sampled: AtomicBool::new(false),
        }
    }
}

impl LiveFeed {
    /// A place among the viewers, or `None` if all are taken. Dropping the viewer frees its place.
    pub(crate) fn admit(&self) -> Option<Viewer> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        gauge!(LIVE_VIEWERS).increment(1);
        Some(Viewer {
            ticks: self.ticks.subscribe(),
            _place: place,
        })
    }

    /// Publishes a tick, if somebody watches.
    pub(crate) fn publish(&self, tick: impl FnOnce() -> LiveTick) {
        if self.ticks.receiver_count() > 0 {
            self.ticks.send_replace(tick());
        }
    }

    /// Makes the caller the only one that samples, unless there is one already.
    pub(crate) fn start_sampling(&self) -> Option<SamplingGuard<'_>> {
        let is_first = !self.is_sampled.swap(true, Ordering::Relaxed);
        is_first.then_some(SamplingGuard(self))
    }
}

/// Ends the sampling when it is dropped.
pub(crate) struct SamplingGuard<'a>(&'a LiveFeed);

impl Drop for SamplingGuard<'_> {
    fn drop(&mut self) {
        self.0.is_sampled.store(false, Ordering::Relaxed);
    }
}

/// A viewer of the feed.
pub(crate) struct Viewer {
    pub(crate) ticks: watch::Receiver<LiveTick>,
    _place: OwnedSemaphorePermit,
}

impl Drop for Viewer {
    fn drop(&mut self) {
        gauge!(LIVE_VIEWERS).decrement(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(at: u64) -> LiveTick {
        LiveTick {
            at,
            json: at.to_string().into(),
        }
    }

    #[test]
    fn a_place_is_free_again_when_its_viewer_leaves() {
        let feed = LiveFeed::default();
        let mut viewers: Vec<_> = (0..MAX_VIEWERS).map_while(|_| feed.admit()).collect();

        assert_eq!(viewers.len(), MAX_VIEWERS);
        assert!(feed.admit().is_none());
        viewers.pop();
        assert!(feed.admit().is_some());
    }

    #[tokio::test]
    async fn a_slow_viewer_gets_the_newest_tick() {
        let feed = LiveFeed::default();
        feed.publish(|| unreachable!("nobody watches"));
        let mut viewer = feed.admit().unwrap();

        for at in 1..=1_000 {
            feed.publish(|| tick(at));
        }
        viewer.ticks.changed().await.unwrap();
        assert_eq!(viewer.ticks.borrow_and_update().at, 1_000);
        assert!(!viewer.ticks.has_changed().unwrap());
    }

    #[test]
    fn a_feed_is_sampled_once() {
        let feed = LiveFeed::default();
        let first = feed.start_sampling();

        assert!(first.is_some() && feed.start_sampling().is_none());
        drop(first);
        assert!(feed.start_sampling().is_some());
    }
}

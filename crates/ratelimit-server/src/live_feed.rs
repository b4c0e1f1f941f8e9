//! The feed of live numbers: one sample a second, for all viewers.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use metrics::gauge;
use tokio::{sync::watch, time::Instant};

use crate::{metrics::LIVE_VIEWERS, session_cookie::unix_seconds};

/// The most viewers at a time.
pub(crate) const MAX_VIEWERS: usize = 32;

/// The time after which a viewer that does not read loses its place, if another one wants it. Each tick and each keep-alive
/// polls a stream that is read.
const MAX_UNREAD: Duration = Duration::from_secs(60);

/// Hands each tick to all viewers.
///
/// The feed holds the newest tick only: a viewer that is late gets that one, so a slow viewer neither delays others nor costs
/// memory.
pub(crate) struct LiveFeed {
    /// Unix seconds.
    pub(crate) started_at: u64,
    ticks: watch::Sender<LiveTick>,
    places: Arc<Mutex<PlaceTable>>,
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
            places: Arc::default(),
            is_sampled: AtomicBool::new(false),
        }
    }
}

impl LiveFeed {
    /// A place among the viewers, or `None` if all are taken by viewers that read. Dropping the viewer frees its place.
    pub(crate) fn admit(&self) -> Option<Viewer> {
        let id = lock(&self.places).take(Instant::now())?;
        Some(Viewer {
            ticks: self.ticks.subscribe(),
            place: ViewerPlace {
                places: Arc::clone(&self.places),
                id,
            },
        })
    }

    /// Lets all viewers have read so much earlier.
    #[cfg(test)]
    pub(crate) fn age_places(&self, span: Duration) {
        for place in &mut lock(&self.places).polled {
            place.1 = place.1.checked_sub(span).expect("a moment");
        }
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
    pub(crate) place: ViewerPlace,
}

impl Drop for Viewer {
    fn drop(&mut self) {
        lock(&self.place.places).remove(self.place.id);
    }
}

/// The place of a viewer.
#[derive(Clone)]
pub(crate) struct ViewerPlace {
    places: Arc<Mutex<PlaceTable>>,
    id: u64,
}

impl ViewerPlace {
    /// Notes that the viewer reads. `false` if its place has gone to another one.
    pub(crate) fn mark_polled(&self) -> bool {
        lock(&self.places).mark_polled(self.id, Instant::now())
    }
}

/// The places that are taken, by the moment of the last poll. The gauge of viewers is their number.
#[derive(Default)]
struct PlaceTable {
    next_id: u64,
    polled: Vec<(u64, Instant)>,
}

impl PlaceTable {
    /// Takes a place: a free one, or that of the viewer that has not read for longest, at least [`MAX_UNREAD`].
    ///
    /// The connection of such a viewer stays until it ends by itself, because hyper does not poll its stream.
    fn take(&mut self, now: Instant) -> Option<u64> {
        if self.polled.len() == MAX_VIEWERS {
            let (id, polled_at) = *self.polled.iter().min_by_key(|(_, at)| *at)?;
            if now.duration_since(polled_at) < MAX_UNREAD {
                return None;
            }
            self.remove(id);
        }
        self.next_id += 1;
        self.polled.push((self.next_id, now));
        gauge!(LIVE_VIEWERS).increment(1);
        Some(self.next_id)
    }

    fn mark_polled(&mut self, id: u64, now: Instant) -> bool {
        let place = self.polled.iter_mut().find(|place| place.0 == id);
        place.map(|place| place.1 = now).is_some()
    }

    fn remove(&mut self, id: u64) {
        let place = self.polled.iter().position(|place| place.0 == id);
        if let Some(place) = place {
            self.polled.swap_remove(place);
            gauge!(LIVE_VIEWERS).decrement(1);
        }
    }
}

fn lock(places: &Mutex<PlaceTable>) -> MutexGuard<'_, PlaceTable> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn a_viewer_that_does_not_read_for_a_minute_loses_its_place_to_another_one() {
        let mut places = PlaceTable::default();
        let start = Instant::now();
        let ids: Vec<_> = (0..99).map_while(|_| places.take(start)).collect();
        assert_eq!(ids.len(), MAX_VIEWERS);
        for id in &ids[1..] {
            assert!(places.mark_polled(*id, start + MAX_UNREAD / 2));
        }

        let end = start + MAX_UNREAD;
        assert_eq!(places.take(end - Duration::from_millis(1)), None);
        let other = places.take(end).expect("the place of the first one");

        assert_eq!(places.take(end), None);
        assert!(!places.mark_polled(ids[0], end));
        assert!(places.mark_polled(ids[1], end) && places.mark_polled(other, end));
        // The end of a viewer without a place frees none.
        places.remove(ids[0]);
        assert_eq!(places.take(end), None);
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

//! Hits that find some of their kind under way share a call.
//!
//! There is no timer: a call takes whoever is ready, and waits only for one of four to come back.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use ahash::HashMap;
use redis::Value;
use tokio::{runtime::Handle, sync::oneshot};

use super::{
    access::Way,
    answer::InvalidReply,
    batch::{Answers, Asking, Batch, Outcome, Waiting},
    call::{Ask, MOST_CALLS, failure},
    lane::{Kind, Lane, Sharing},
    store::Shared,
    trouble::Trouble,
};
use crate::{meter, store::contract::StoreError};

/// The hits under way at one server, and those that wait.
#[derive(Debug)]
pub(super) struct Batcher {
    /// So many of one kind are sent by themselves before others wait.
    most_alone: usize,
    /// Where the connection lives, without which nobody is answered.
    runtime: Handle,
    lanes: Mutex<HashMap<Kind, Lane>>,
}

/// A place among the calls of a kind; who leaves it makes room for those who wait.
pub(super) struct Place {
    shared: Arc<Shared>,
    way: Way,
    kind: Kind,
    sharing: Sharing,
}

/// How a hit is sent.
pub(super) enum Sent {
    /// By itself.
    Alone(Option<Place>),
    /// With others.
    Together(oneshot::Receiver<Outcome>),
}

impl Batcher {
    /// For a connection that lives on the runtime which this is called on.
    pub(super) fn new(most_alone: usize) -> Batcher {
        Batcher {
            most_alone,
            runtime: Handle::current(),
            lanes: Mutex::default(),
        }
    }

    /// The runtime that the connection lives on.
    pub(super) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<Kind, Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn come_back(&self, place: &Place) -> bool {
        let mut lanes = self.lanes();
        let lane = lanes.get_mut(&place.kind);
        lane.is_some_and(|lane| lane.come_back(place.sharing))
    }

    /// The first hit of a call that takes the place of one that came back.
    fn begin_next(&self, kind: &Kind) -> Option<Waiting> {
        let mut lanes = self.lanes();
        let lane = lanes.get_mut(kind)?;
        let next = lane.begin_next();
        if lane.is_idle() {
            lanes.remove(kind);
        }
        next
    }

    /// `first`, and what else waits of its kind; and the first hit of another call, if that was too much
    /// for one.
    fn fill(&self, kind: &Kind, first: Waiting) -> (Vec<Waiting>, Option<Waiting>) {
        match self.lanes().get_mut(kind) {
            Some(lane) => (lane.fill(first), lane.begin()),
            None => (vec![first], None),
        }
    }
}

impl Place {
    /// A place for a hit by itself, or one among those who wait.
    pub(super) fn find(
        shared: &Arc<Shared>,
        way: &Way,
        asking: &Arc<Asking>,
        deadline: Instant,
    ) -> Sent {
        let Some(batcher) = way.batcher() else {
            return Sent::Alone(None);
        };
        let slot = shared.access.slot_of(&asking.names[0]);
        let kind = Kind::of(&asking.question, slot);
        let place = |kind, sharing| Place {
            shared: Arc::clone(shared),
            way: way.clone(),
            kind,
            sharing,
        };
        let mut lanes = batcher.lanes();
        let lane = lanes.entry(kind.clone()).or_default();
        if lane.go_alone(batcher.most_alone) {
            drop(lanes);
            return Sent::Alone(Some(place(kind, Sharing::Alone)));
        }
        let (answer, told) = oneshot::channel();
        let hit = Waiting {
            asking: Arc::clone(asking),
            deadline,
            answer,
        };
        let begun = lane.wait(hit);
        drop(lanes);
        if let Some(first) = begun {
            place(kind, Sharing::Filling).begin(first);
        }
        Sent::Together(told)
    }

    /// Fills a call, and sends it, in a task where the connection lives.
    fn begin(self, first: Waiting) {
        if let Some(batcher) = self.way.batcher() {
            batcher.runtime().clone().spawn(self.carry(first));
        }
    }

    /// Sends `first` and what waits with it.
    async fn carry(mut self, first: Waiting) {
        // Whoever is about to ask does so first.
        tokio::task::yield_now().await;
        let Some(batcher) = self.way.batcher() else {
            return;
        };
        let (hits, too_many) = batcher.fill(&self.kind, first);
        self.sharing = Sharing::Sent;
        if let Some(first) = too_many {
            self.like(Sharing::Filling).begin(first);
        }
        let batch = Batch::new(hits);
        let Some(last) = batch.last_deadline() else {
            return;
        };
        // Whoever has waited for so long has answered for itself. However many hits share it, it is one call.
        let sent = tokio::time::timeout_at(last.into(), self.send(batch)).await;
        if sent.is_err() {
            self.shared.call_timed_out(&self.way);
        }
    }

    fn like(&self, sharing: Sharing) -> Place {
        Place {
            shared: Arc::clone(&self.shared),
            way: self.way.clone(),
            kind: self.kind.clone(),
            sharing,
        }
    }

    async fn send(&self, mut batch: Batch) {
        let way = &self.way;
        let mut ask = Ask::Hash;
        for _ in 0..MOST_CALLS {
            let sent = Instant::now();
            let error = match way.call(batch.command(ask, way.clock())).await {
                Ok(answer) => match self.read(&batch, &answer, sent) {
                    Ok(Answers {
                        now,
                        said: Some(said),
                    }) => return batch.tell(now, &said, way.log()),
                    // The server's clock was set forward, or some came late: nothing ran.
                    Ok(_) if batch.forget_late(Instant::now()) => continue,
                    Ok(_) => return,
                    Err(invalid) => {
                        way.broken(invalid.to_string());
                        return batch.failed(&StoreError::refused(invalid));
                    }
                },
                Err(error) => error,
            };
            match Trouble::of(&error) {
                Trouble::MissingScript => ask = Ask::Text,
                trouble @ (Trouble::Lost | Trouble::Down) => {
                    self.shared.access.map_is_stale();
                    return batch.failed(&failure(way, &trouble, error));
                }
                // The server refused before anything ran.
                Trouble::Moved(_) | Trouble::Ask(_) | Trouble::TryAgain | Trouble::Refused => {
                    return batch.dissolve();
                }
            }
        }
        batch.failed(&StoreError::TimedOut);
    }

    /// Reads an answer, and learns from it how the server is and what its clock shows.
    fn read(&self, batch: &Batch, answer: &Value, sent: Instant) -> Result<Answers, InvalidReply> {
        let received = Instant::now();
        let Value::BulkString(bytes) = answer else {
            return Err(InvalidReply::Malformed);
        };
        let answers = batch.read(bytes)?;
        self.way.answered();
        meter::round_trip(received - sent);
        if batch.learns_time() {
            self.way.clock().learn(answers.now, sent, received);
        }
        Ok(answers)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(batcher) = self.way.batcher() else {
            return;
        };
        // A runtime that shuts down drops what it is given at once, and its place with it: that comes
        // back while this looks after the lane, and is seen by the loop.
        if !batcher.come_back(self) {
            return;
        }
        while let Some(first) = batcher.begin_next(&self.kind) {
            self.like(Sharing::Filling).begin(first);
        }
    }
}

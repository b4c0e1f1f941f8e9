//! Hits that find enough calls under way wait a moment, and then share one.
//!
//! There is no timer: as soon as a call comes back, whatever waits is sent.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use ahash::HashMap;
use redis::Value;
use tokio::{runtime::Handle, sync::oneshot};

use super::{
    access::Way,
    answer::Nonsense,
    batch::{Answers, Batch, Kind, MOST_HITS, Outcome, Waiting},
    call::{Ask, MOST_CALLS, failure},
    question::Question,
    store::Shared,
    trouble::Trouble,
};
use crate::{meter, store::contract::StoreError};

/// The calls under way at one server, and the hits that wait for one to come back.
#[derive(Debug)]
pub(super) struct Batcher {
    /// So many calls are under way before hits wait.
    most_calls: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: usize,
    waiting: HashMap<Kind, VecDeque<Queued>>,
    /// The kinds that wait, in turn.
    turns: VecDeque<Kind>,
    /// Calls that came back and whose place is not given on yet.
    freed: usize,
    is_passing_on: bool,
}

#[derive(Debug)]
struct Queued {
    hit: Waiting,
    /// Where the hit's caller runs.
    runtime: Handle,
}

/// A place among the calls under way; who leaves it makes room for those who wait.
pub(super) struct Place {
    shared: Arc<Shared>,
    way: Way,
}

/// How a hit is sent.
pub(super) enum Sent {
    /// By itself.
    Alone(Place, Question, Vec<String>),
    /// With others.
    Together(oneshot::Receiver<Outcome>),
}

impl Batcher {
    pub(super) fn new(most_calls: usize) -> Batcher {
        Batcher {
            most_calls,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a place on that a call has left.
    fn pass_on(&self, shared: &Arc<Shared>, way: &Way) {
        {
            let mut state = self.state();
            state.freed += 1;
            // A runtime that shuts down drops what it is given at once, and its place with it: what
            // is dropped below is given on by the loop below.
            if state.is_passing_on {
                return;
            }
            state.is_passing_on = true;
        }
        while let Some((kind, first)) = self.next() {
            let place = Place {
                shared: Arc::clone(shared),
                way: way.clone(),
            };
            let Queued { hit, runtime } = first;
            runtime.spawn(place.carry(kind, hit));
        }
    }

    /// The first hit that a free place goes to; nothing when no place is free.
    fn next(&self) -> Option<(Kind, Queued)> {
        let mut state = self.state();
        while state.freed > 0 {
            state.freed -= 1;
            let next = state.next();
            if next.is_some() {
                return next;
            }
            state.calls -= 1;
        }
        state.is_passing_on = false;
        None
    }

    /// `first`, and what else waits of its kind.
    fn batch(&self, kind: &Kind, first: Waiting) -> Batch {
        let mut state = self.state();
        let mut hits = vec![first];
        while hits.len() < MOST_HITS
            && let Some(queued) = state.next_of(kind)
        {
            hits.push(queued.hit);
        }
        drop(state);
        Batch::new(hits)
    }
}

impl State {
    fn wait(&mut self, kind: Kind, queued: Queued) {
        if let Some(queue) = self.waiting.get_mut(&kind) {
            queue.push_back(queued);
            return;
        }
        self.turns.push_back(kind.clone());
        self.waiting.insert(kind, VecDeque::from([queued]));
    }

    /// The longest waiting hit of the kind whose turn it is.
    fn next(&mut self) -> Option<(Kind, Queued)> {
        while let Some(kind) = self.turns.pop_front() {
            if let Some(queued) = self.next_of(&kind) {
                self.turns.push_back(kind.clone());
                return Some((kind, queued));
            }
            self.waiting.remove(&kind);
        }
        None
    }

    /// The longest waiting hit of a kind whose caller is still there.
    fn next_of(&mut self, kind: &Kind) -> Option<Queued> {
        let queue = self.waiting.get_mut(kind)?;
        while let Some(queued) = queue.pop_front() {
            if !queued.hit.answer.is_closed() {
                return Some(queued);
            }
        }
        None
    }
}

impl Place {
    /// A place for a hit by itself, or one among those who wait.
    pub(super) fn find(
        shared: &Arc<Shared>,
        way: &Way,
        question: Question,
        names: Vec<String>,
        deadline: Instant,
    ) -> Sent {
        let place = || Place {
            shared: Arc::clone(shared),
            way: way.clone(),
        };
        let Some(batcher) = way.batcher() else {
            return Sent::Alone(place(), question, names);
        };
        let mut state = batcher.state();
        if state.calls < batcher.most_calls {
            state.calls += 1;
            return Sent::Alone(place(), question, names);
        }
        let kind = Kind::of(&question, shared.access.slot_of(&names[0]));
        let (answer, told) = oneshot::channel();
        let hit = Waiting {
            question,
            names,
            deadline,
            answer,
        };
        let runtime = Handle::current();
        state.wait(kind, Queued { hit, runtime });
        Sent::Together(told)
    }

    /// Sends `first` and what waits with it.
    async fn carry(self, kind: Kind, first: Waiting) {
        let Some(batcher) = self.way.batcher() else {
            return;
        };
        let batch = batcher.batch(&kind, first);
        let Some(last) = batch.last_deadline() else {
            return;
        };
        // Who has waited for so long has answered for itself.
        let _ = tokio::time::timeout_at(last.into(), self.send(batch)).await;
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
                    }) => return batch.tell(now, said),
                    // The server's clock was set forward, or some came late: nothing ran.
                    Ok(_) if batch.forget_late(Instant::now()) => continue,
                    Ok(_) => return,
                    Err(nonsense) => return batch.failed(&StoreError::refused(nonsense)),
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
                Trouble::Moved(_) | Trouble::Ask(_) | Trouble::Refused => return batch.dissolve(),
            }
        }
        batch.failed(&StoreError::TimedOut);
    }

    /// Reads an answer, and learns from it how the server is and what its clock shows.
    fn read(&self, batch: &Batch, answer: &Value, sent: Instant) -> Result<Answers, Nonsense> {
        let received = Instant::now();
        let answers = match answer {
            Value::BulkString(bytes) => batch.read(bytes),
            _ => Err(Nonsense),
        };
        let answers = answers.inspect_err(|_| self.way.broken())?;
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
        if let Some(batcher) = self.way.batcher() {
            batcher.pass_on(&self.shared, &self.way);
        }
    }
}

//! Several hits in one call: how they are asked, and what the answer means for each.

use std::time::Instant;

use ahash::RandomState;
use redis::Cmd;
use tokio::sync::oneshot;

use super::{
    answer::{Nonsense, TOO_LATE, Told, answer_head},
    call::Ask,
    question::{Question, push_limits},
    said::Said,
    script::Script,
    server_clock::ServerClock,
};
use crate::{decision::Decision, policy::Purpose, store::contract::StoreError, time::Timestamp};

/// No more hits than this share a call: one that is not in it waits for all that are.
pub(super) const MOST_HITS: usize = 64;

/// What hits have in common that can share a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    limits: Box<[u8]>,
    cost: u64,
    purpose: Purpose,
    now: Option<Timestamp>,
    /// The slot of their keys, in a cluster.
    slot: Option<u16>,
}

impl Kind {
    pub(super) fn of(question: &Question, slot: Option<u16>) -> Kind {
        let mut limits = Vec::new();
        push_limits(&mut limits, question.groups(), question.asked);
        Kind {
            limits: limits.into(),
            cost: question.asked.cost,
            purpose: question.asked.purpose,
            now: question.now,
            slot,
        }
    }
}

/// A hit that waits for its answer.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) question: Question,
    /// The name of its key, the only one.
    pub(super) names: Vec<String>,
    pub(super) deadline: Instant,
    pub(super) answer: oneshot::Sender<Outcome>,
}

/// What became of a hit that went with others.
#[derive(Debug)]
pub(super) enum Outcome {
    Decided(Result<Decision, StoreError>),
    /// Nothing was done, and it has to be asked by itself.
    Alone {
        question: Question,
        names: Vec<String>,
        /// Whether the script for buckets has found something odd.
        is_odd: bool,
    },
}

impl Waiting {
    fn goes_alone(self, is_odd: bool) {
        let alone = Outcome::Alone {
            question: self.question,
            names: self.names,
            is_odd,
        };
        // Nobody may be there any more to be told, here and below.
        let _ = self.answer.send(alone);
    }

    fn decided(self, decision: Result<Decision, StoreError>) {
        let _ = self.answer.send(Outcome::Decided(decision));
    }
}

/// Hits of one kind that share a call.
#[derive(Debug)]
pub(super) struct Batch {
    keys: Vec<Key>,
}

/// The hits on one key, in the order in which they came.
#[derive(Debug)]
struct Key {
    hash: u64,
    hits: Vec<Waiting>,
}

impl Batch {
    /// The call of these hits, of which there is at least one.
    pub(super) fn new(hits: impl IntoIterator<Item = Waiting>) -> Batch {
        let hasher = RandomState::new();
        let mut keys: Vec<Key> = Vec::new();
        for hit in hits {
            let hash = hasher.hash_one(&hit.names);
            let same = |key: &&mut Key| key.hash == hash && key.hits[0].names == hit.names;
            match keys.iter_mut().find(same) {
                Some(key) => key.hits.push(hit),
                None => keys.push(Key {
                    hash,
                    hits: vec![hit],
                }),
            }
        }
        Batch { keys }
    }

    fn any(&self) -> &Question {
        &self.keys[0].hits[0].question
    }

    fn deadlines(&self) -> impl Iterator<Item = Instant> {
        let hits = self.keys.iter().flat_map(|key| &key.hits);
        hits.map(|hit| hit.deadline)
    }

    /// When nobody waits for an answer any more.
    pub(super) fn last_deadline(&self) -> Option<Instant> {
        self.deadlines().max()
    }

    /// Whether the clock is the server's.
    pub(super) fn learns_time(&self) -> bool {
        self.any().now.is_none()
    }

    pub(super) fn command(&self, ask: Ask, clock: &ServerClock) -> Cmd {
        let question = self.any();
        let bucket = question.bucket();
        let mut cmd = ask.command(match bucket {
            Some(_) => Script::of_buckets(),
            None => Script::batching(question.groups()),
        });
        cmd.arg(self.keys.len());
        for key in &self.keys {
            cmd.arg(&key.hits[0].names[0]);
        }
        // None of the hits may be counted after its caller was answered otherwise.
        let deadline = match self.deadlines().min() {
            Some(first) if self.learns_time() => clock.at(first),
            _ => None,
        };
        cmd.arg(match bucket {
            Some(bucket) => bucket.argument(deadline),
            None => question.argument(deadline),
        });
        cmd.arg(self.counts());
        cmd
    }

    /// How many hits each key gets; a script for buckets need not be told that each gets one.
    fn counts(&self) -> Vec<u8> {
        let is_one = |key: &Key| key.hits.len() == 1;
        if self.any().bucket().is_some() && self.keys.iter().all(is_one) {
            return Vec::new();
        }
        let count = |key: &Key| u8::try_from(key.hits.len()).expect("no more than `MOST_HITS`");
        self.keys.iter().map(count).collect()
    }

    /// Lets go of those who have waited for too long; false when nobody is left.
    pub(super) fn forget_late(&mut self, now: Instant) -> bool {
        for key in &mut self.keys {
            key.hits.retain(|hit| hit.deadline > now);
        }
        self.keys.retain(|key| !key.hits.is_empty());
        !self.keys.is_empty()
    }

    /// What the script answered of each key.
    pub(super) fn read(&self, answer: &[u8]) -> Result<Answers, Nonsense> {
        let (status, now, mut rest) = answer_head(answer)?;
        let said = match status {
            TOO_LATE => None,
            0 => {
                let keys = self.keys.iter();
                let said = keys
                    .map(|key| Said::read(&key.hits[0].question, key.hits.len(), now, &mut rest));
                Some(said.collect::<Result<_, _>>()?)
            }
            _ => return Err(Nonsense),
        };
        if !rest.is_empty() {
            return Err(Nonsense);
        }
        Ok(Answers { now, said })
    }

    /// Tells everybody what the script said.
    pub(super) fn tell(self, now: Timestamp, said: Vec<Said>) {
        for (key, said) in self.keys.into_iter().zip(said) {
            for (place, hit) in key.hits.into_iter().enumerate() {
                match said.of(place, &hit.question, now) {
                    Some(told) => {
                        let decision = told.map(Told::decision);
                        hit.decided(decision.map_err(StoreError::refused));
                    }
                    None => hit.goes_alone(true),
                }
            }
        }
    }

    /// Tells everybody that there is no answer.
    pub(super) fn failed(self, error: &StoreError) {
        let hits = self.keys.into_iter().flat_map(|key| key.hits);
        hits.for_each(|hit| hit.decided(Err(error.clone())));
    }

    /// Lets everybody ask by itself: nothing was done.
    pub(super) fn dissolve(self) {
        let hits = self.keys.into_iter().flat_map(|key| key.hits);
        hits.for_each(|hit| hit.goes_alone(false));
    }
}

/// What a script answered.
pub(super) struct Answers {
    pub(super) now: Timestamp,
    /// Of each key; nothing when the deadline had passed, and nothing was done.
    pub(super) said: Option<Vec<Said>>,
}

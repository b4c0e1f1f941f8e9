//! Several hits in one call: how they are asked, and what the answer means for each.

use std::{sync::Arc, time::Instant};

use ahash::RandomState;
use redis::Cmd;
use smallvec::{SmallVec, smallvec};
use tokio::sync::oneshot;

use super::{
    answer::{InvalidReply, TOO_LATE, answer_head, take_now},
    call::Ask,
    keys::Names,
    outage_log::OutageLog,
    question::Question,
    said::Said,
    script::Script,
    server_clock::ServerClock,
};
use crate::{decision::Decision, store::contract::StoreError, time::Timestamp};

/// No more hits than this share a call: one that is not in it waits for all that are.
pub(super) const MOST_HITS: usize = 64;

/// A hit on its way: what is asked, and of which keys.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) question: Question,
    pub(super) names: Names,
}

/// A hit that waits for its answer.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) asking: Arc<Asking>,
    pub(super) deadline: Instant,
    pub(super) answer: oneshot::Sender<Outcome>,
}

/// What became of a hit that went with others.
#[derive(Debug)]
pub(super) enum Outcome {
    Decided(Result<Decision, StoreError>),
    /// Nothing was done, and it has to be asked by itself.
    Alone {
        /// Whether the script for buckets has found something odd.
        is_odd: bool,
    },
}

impl Waiting {
    fn tell(self, outcome: Outcome) {
        // Nobody may be there any more to be told.
        let _ = self.answer.send(outcome);
    }

    /// The name of its key, the only one.
    fn name(&self) -> &str {
        &self.asking.names[0]
    }
}

/// Hits of one kind that share a call.
#[derive(Debug)]
pub(super) struct Batch {
    keys: Vec<Key>,
}

/// The hits on one key, in the order in which they came; nearly always one.
#[derive(Debug)]
struct Key {
    hash: u64,
    hits: SmallVec<[Waiting; 1]>,
}

impl Key {
    fn name(&self) -> &str {
        self.hits[0].name()
    }
}

impl Batch {
    /// The call of these hits, of which there is at least one.
    pub(super) fn new(hits: Vec<Waiting>) -> Batch {
        let hasher = RandomState::new();
        let mut keys: Vec<Key> = Vec::with_capacity(hits.len());
        for hit in hits {
            let hash = hasher.hash_one(hit.name());
            let same = |key: &&mut Key| key.hash == hash && key.name() == hit.name();
            match keys.iter_mut().find(same) {
                Some(key) => key.hits.push(hit),
                None => keys.push(Key {
                    hash,
                    hits: smallvec![hit],
                }),
            }
        }
        Batch { keys }
    }

    /// A call of one hit that nobody waits for.
    pub(super) fn probe(question: Question, name: &str) -> Batch {
        let (answer, _) = oneshot::channel();
        let names = smallvec![name.to_owned()];
        Batch::new(vec![Waiting {
            asking: Arc::new(Asking { question, names }),
            deadline: Instant::now(),
            answer,
        }])
    }

    fn any(&self) -> &Question {
        &self.keys[0].hits[0].asking.question
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
            cmd.arg(key.name());
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

    /// What the script answered of each key, all of which makes sense.
    pub(super) fn read(&self, mut answer: &[u8]) -> Result<Answers, InvalidReply> {
        let (now, is_late) = if self.any().bucket().is_some() {
            let now = take_now(&mut answer)?;
            (now, answer.is_empty())
        } else {
            let (status, now, rest) = answer_head(answer)?;
            answer = rest;
            match status {
                0 => (now, false),
                TOO_LATE => (now, true),
                _ => return Err(InvalidReply::Malformed),
            }
        };
        let mut said = Vec::new();
        if !is_late {
            said.reserve_exact(self.keys.len());
            for key in &self.keys {
                let question = &key.hits[0].asking.question;
                said.push(Said::read(question, key.hits.len(), &mut answer)?);
            }
        }
        if !answer.is_empty() {
            return Err(InvalidReply::Malformed);
        }
        let said = (!is_late).then_some(said);
        Ok(Answers { now, said })
    }

    /// Tells everybody what the script said.
    pub(super) fn tell(self, now: Timestamp, said: &[Said], log: &OutageLog) {
        for (key, said) in self.keys.into_iter().zip(said) {
            key.tell(now, said, log);
        }
    }

    /// Tells everybody that there is no answer.
    pub(super) fn failed(self, error: &StoreError) {
        self.tell_all(|| Outcome::Decided(Err(error.clone())));
    }

    /// Lets everybody ask by itself: nothing was done.
    pub(super) fn dissolve(self) {
        self.tell_all(|| Outcome::Alone { is_odd: false });
    }

    fn tell_all(self, outcome: impl Fn() -> Outcome) {
        let hits = self.keys.into_iter().flat_map(|key| key.hits);
        hits.for_each(|hit| hit.tell(outcome()));
    }
}

impl Key {
    fn tell(self, now: Timestamp, said: &Said, log: &OutageLog) {
        for (place, hit) in self.hits.into_iter().enumerate() {
            let outcome = match said.of(place, &hit.asking.question, now) {
                Some(Ok(decision)) => Outcome::Decided(Ok(decision)),
                Some(Err(invalid)) => {
                    log.log_refused(&invalid);
                    Outcome::Decided(Err(StoreError::refused(invalid)))
                }
                None => Outcome::Alone { is_odd: true },
            };
            hit.tell(outcome);
        }
    }
}

/// What a script answered.
pub(super) struct Answers {
    pub(super) now: Timestamp,
    /// Of each key; nothing when the deadline had passed, and nothing was done.
    pub(super) said: Option<Vec<Said>>,
}

//! Several hits in one call: how they are asked, and what the answer means for each.

pub(in crate::store::redis) mod batcher;
pub(in crate::store::redis) mod queue;

use std::{sync::Arc, time::Instant};

use ahash::RandomState;
use redis::Cmd;
use smallvec::{SmallVec, smallvec};
use tokio::sync::oneshot;

use crate::store::redis::{
    call::Eval,
    command::{
        check::CheckCommand,
        check_batch::BatchEntry,
        reply::{InvalidReply, REPLY_TOO_LATE, read_header, read_server_time},
    },
    connection::{clock_offset::ClockOffset, outage_log::OutageLog},
    keyspace::KeyNames,
    script::Script,
};
use crate::{decision::Decision, store::contract::StoreError, time::Timestamp};

/// No more hits than this share a call: one that is not in it waits for all that are.
pub(in crate::store::redis) const MAX_HITS: usize = 64;

/// A hit on its way: what is asked, and of which keys.
#[derive(Debug)]
pub(in crate::store::redis) struct PendingHit {
    pub(in crate::store::redis) command: CheckCommand,
    pub(in crate::store::redis) names: KeyNames,
}

/// A hit that waits for its answer.
#[derive(Debug)]
pub(in crate::store::redis) struct QueuedHit {
    pub(in crate::store::redis) pending: Arc<PendingHit>,
    pub(in crate::store::redis) deadline: Instant,
    pub(in crate::store::redis) answer: oneshot::Sender<BatchOutcome>,
}

/// What became of a hit that went with others.
#[derive(Debug)]
pub(in crate::store::redis) enum BatchOutcome {
    Decided(Result<Decision, StoreError>),
    /// Nothing was done, and it has to be asked by itself.
    SendSingle {
        /// Whether the script for buckets has found something odd.
        skip_fast_script: bool,
    },
}

impl QueuedHit {
    fn deliver(self, outcome: BatchOutcome) {
        // Nobody may be there any more to be told.
        let _ = self.answer.send(outcome);
    }

    /// The name of its key, the only one.
    fn name(&self) -> &str {
        &self.pending.names[0]
    }
}

/// Hits of one kind that share a call.
#[derive(Debug)]
pub(in crate::store::redis) struct Batch {
    keys: Vec<KeyHits>,
}

/// The hits on one key, in the order in which they came; nearly always one.
#[derive(Debug)]
struct KeyHits {
    hash: u64,
    hits: SmallVec<[QueuedHit; 1]>,
}

impl KeyHits {
    fn name(&self) -> &str {
        self.hits[0].name()
    }
}

impl Batch {
    /// The call of these hits, of which there is at least one.
    pub(in crate::store::redis) fn new(hits: Vec<QueuedHit>) -> Batch {
        let hasher = RandomState::new();
        let mut keys: Vec<KeyHits> = Vec::with_capacity(hits.len());
        for hit in hits {
            let hash = hasher.hash_one(hit.name());
            let same = |key: &&mut KeyHits| key.hash == hash && key.name() == hit.name();
            match keys.iter_mut().find(same) {
                Some(key) => key.hits.push(hit),
                None => keys.push(KeyHits {
                    hash,
                    hits: smallvec![hit],
                }),
            }
        }
        Batch { keys }
    }

    /// A call of one hit that nobody waits for.
    pub(in crate::store::redis) fn probe(command: CheckCommand, name: &str) -> Batch {
        let (answer, _) = oneshot::channel();
        let names = smallvec![name.to_owned()];
        Batch::new(vec![QueuedHit {
            pending: Arc::new(PendingHit { command, names }),
            deadline: Instant::now(),
            answer,
        }])
    }

    fn first(&self) -> &CheckCommand {
        &self.keys[0].hits[0].pending.command
    }

    fn deadlines(&self) -> impl Iterator<Item = Instant> {
        let hits = self.keys.iter().flat_map(|key| &key.hits);
        hits.map(|hit| hit.deadline)
    }

    /// Whether the callers of all hits have left.
    pub(in crate::store::redis) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether the clock is the server's.
    pub(in crate::store::redis) fn learns_time(&self) -> bool {
        self.first().now.is_none()
    }

    pub(in crate::store::redis) fn command(&self, ask: Eval, clock: &ClockOffset) -> Cmd {
        let command = self.first();
        let bucket = command.as_bucket();
        let mut cmd = ask.command(match bucket {
            Some(_) => Script::check_bucket_batch(),
            None => Script::check_batch(command.groups()),
        });
        cmd.arg(self.keys.len());
        for key in &self.keys {
            cmd.arg(key.name());
        }
        // None of the hits may be counted after its caller was answered otherwise.
        let deadline = match self.deadlines().min() {
            Some(first) if self.learns_time() => clock.server_time(first),
            _ => None,
        };
        cmd.arg(match bucket {
            Some(bucket) => bucket.encode(deadline),
            None => command.encode(deadline),
        });
        cmd.arg(self.counts());
        cmd
    }

    /// How many hits each key gets; a script for buckets need not be told that each gets one.
    fn counts(&self) -> Vec<u8> {
        let is_one = |key: &KeyHits| key.hits.len() == 1;
        if self.first().as_bucket().is_some() && self.keys.iter().all(is_one) {
            return Vec::new();
        }
        let count = |key: &KeyHits| u8::try_from(key.hits.len()).expect("no more than `MOST_HITS`");
        self.keys.iter().map(count).collect()
    }

    /// Lets go of those who have waited for too long; false when nobody is left.
    pub(in crate::store::redis) fn drop_expired(&mut self, now: Instant) -> bool {
        for key in &mut self.keys {
            key.hits.retain(|hit| hit.deadline > now);
        }
        self.keys.retain(|key| !key.hits.is_empty());
        !self.keys.is_empty()
    }

    /// What the script answered of each key, all of which makes sense.
    pub(in crate::store::redis) fn decode(
        &self,
        mut answer: &[u8],
    ) -> Result<BatchReply, InvalidReply> {
        let (now, is_late) = if self.first().as_bucket().is_some() {
            let now = read_server_time(&mut answer)?;
            (now, answer.is_empty())
        } else {
            let (status, now, rest) = read_header(answer)?;
            answer = rest;
            match status {
                0 => (now, false),
                REPLY_TOO_LATE => (now, true),
                _ => return Err(InvalidReply::Malformed),
            }
        };
        let mut entries = Vec::new();
        if !is_late {
            entries.reserve_exact(self.keys.len());
            for key in &self.keys {
                let command = &key.hits[0].pending.command;
                entries.push(BatchEntry::decode(command, key.hits.len(), &mut answer)?);
            }
        }
        if !answer.is_empty() {
            return Err(InvalidReply::Malformed);
        }
        let entries = (!is_late).then_some(entries);
        Ok(BatchReply { now, entries })
    }

    /// Tells everybody what the script said.
    pub(in crate::store::redis) fn deliver(
        self,
        now: Timestamp,
        entries: &[BatchEntry],
        log: &OutageLog,
    ) {
        for (key, entries) in self.keys.into_iter().zip(entries) {
            key.deliver(now, entries, log);
        }
    }

    /// Tells everybody that there is no answer.
    pub(in crate::store::redis) fn fail_all(self, error: &StoreError) {
        self.deliver_all(|| BatchOutcome::Decided(Err(error.clone())));
    }

    /// Lets everybody ask by itself: nothing was done.
    pub(in crate::store::redis) fn split_up(self) {
        self.deliver_all(|| BatchOutcome::SendSingle {
            skip_fast_script: false,
        });
    }

    fn deliver_all(self, outcome: impl Fn() -> BatchOutcome) {
        let hits = self.keys.into_iter().flat_map(|key| key.hits);
        hits.for_each(|hit| hit.deliver(outcome()));
    }
}

impl KeyHits {
    fn deliver(self, now: Timestamp, entries: &BatchEntry, log: &OutageLog) {
        for (index, hit) in self.hits.into_iter().enumerate() {
            let outcome = match entries.decision_for(index, &hit.pending.command, now) {
                Some(Ok(decision)) => BatchOutcome::Decided(Ok(decision)),
                Some(Err(invalid)) => {
                    log.log_refused(&invalid);
                    BatchOutcome::Decided(Err(StoreError::refused(invalid)))
                }
                None => BatchOutcome::SendSingle {
                    skip_fast_script: true,
                },
            };
            hit.deliver(outcome);
        }
    }
}

/// What a script answered.
pub(in crate::store::redis) struct BatchReply {
    pub(in crate::store::redis) now: Timestamp,
    /// Of each key; nothing when the deadline had passed, and nothing was done.
    pub(in crate::store::redis) entries: Option<Vec<BatchEntry>>,
}

//! Batches: hits of one cost and equal limits that are sent in one call.

pub(in crate::store::redis) mod batcher;
pub(in crate::store::redis) mod queue;

use std::{sync::Arc, time::Instant};

use ahash::RandomState;
use smallvec::{SmallVec, smallvec};
use tokio::sync::oneshot;

use crate::store::redis::{
    command::{
        check::CheckCommand,
        check_batch::{BatchCommand, BatchEntry},
    },
    connection::outage_log::OutageLog,
    keyspace::KeyNames,
};
use crate::{decision::Decision, store::contract::StoreError, time::Timestamp};

/// A batch has at most this many hits: the hits of the next batch wait until all of them are decided.
pub(in crate::store::redis) const MAX_HITS: usize = 64;

/// A hit whose decision is pending: the command, and the Redis keys that it charges.
#[derive(Debug)]
pub(in crate::store::redis) struct PendingHit {
    pub(in crate::store::redis) command: CheckCommand,
    pub(in crate::store::redis) names: KeyNames,
}

/// A hit that waits to be sent in a batch, or for the reply to one.
#[derive(Debug)]
pub(in crate::store::redis) struct QueuedHit {
    pub(in crate::store::redis) pending: Arc<PendingHit>,
    pub(in crate::store::redis) deadline: Instant,
    /// Closed when the caller is dropped.
    pub(in crate::store::redis) outcome: oneshot::Sender<BatchOutcome>,
}

/// Outcome of a hit that was sent in a batch.
#[derive(Debug)]
pub(in crate::store::redis) enum BatchOutcome {
    Decided(Result<Decision, StoreError>),
    /// Nothing was executed. The hit has to be sent in a call of its own.
    SendSingle {
        /// Whether the bucket script left the hit to the general script.
        skip_fast_script: bool,
    },
}

impl QueuedHit {
    fn deliver(self, outcome: BatchOutcome) {
        // The caller may have been dropped.
        let _ = self.outcome.send(outcome);
    }

    /// The Redis key. A batched hit has one.
    fn name(&self) -> &str {
        &self.pending.names[0]
    }
}

/// The hits of one call, grouped by key.
#[derive(Debug)]
pub(in crate::store::redis) struct Batch {
    keys: Vec<KeyHits>,
}

/// The hits on one key, in the order of their arrival; nearly always one.
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
    /// Groups hits, of which there is at least one.
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

    /// Whether the batch has no hits.
    pub(in crate::store::redis) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The message that decides the batch.
    pub(in crate::store::redis) fn command(&self) -> BatchCommand<'_> {
        let count = |key: &KeyHits| u8::try_from(key.hits.len()).expect("at most `MAX_HITS`");
        let counts = self.keys.iter().map(count).collect();
        BatchCommand::new(&self.keys[0].hits[0].pending.command, counts)
    }

    /// The Redis keys of the call.
    pub(in crate::store::redis) fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.keys.iter().map(KeyHits::name)
    }

    /// The earliest deadline: no hit may be charged after its caller got another answer.
    pub(in crate::store::redis) fn deadline(&self) -> Option<Instant> {
        let hits = self.keys.iter().flat_map(|key| &key.hits);
        hits.map(|hit| hit.deadline).min()
    }

    /// Drops the hits whose deadline has passed. Returns whether any are left.
    pub(in crate::store::redis) fn drop_expired(&mut self, now: Instant) -> bool {
        for key in &mut self.keys {
            key.hits.retain(|hit| hit.deadline > now);
        }
        self.keys.retain(|key| !key.hits.is_empty());
        !self.keys.is_empty()
    }

    /// Delivers the decisions of a reply, which has one entry for each key.
    pub(in crate::store::redis) fn deliver(
        self,
        now: Timestamp,
        entries: &[BatchEntry],
        log: &OutageLog,
    ) {
        for (key, entry) in self.keys.into_iter().zip(entries) {
            key.deliver(now, entry, log);
        }
    }

    /// Delivers an error to all hits.
    pub(in crate::store::redis) fn fail_all(self, error: &StoreError) {
        self.deliver_all(|| BatchOutcome::Decided(Err(error.clone())));
    }

    /// Has every hit sent by itself, because nothing was executed.
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
    fn deliver(self, now: Timestamp, entry: &BatchEntry, log: &OutageLog) {
        for (index, hit) in self.hits.into_iter().enumerate() {
            let outcome = match entry.decision_for(index, &hit.pending.command, now) {
                Ok(Some(decision)) => BatchOutcome::Decided(Ok(decision)),
                Ok(None) => BatchOutcome::SendSingle {
                    skip_fast_script: true,
                },
                Err(invalid) => {
                    log.log_refused(&invalid);
                    BatchOutcome::Decided(Err(StoreError::refused(invalid)))
                }
            };
            hit.deliver(outcome);
        }
    }
}

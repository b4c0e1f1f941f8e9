//! Batches: hits of one cost and equal limits that are sent in one call.
//!
//! The life of a batched hit:
//!
//! 1. [`Batcher::enqueue`](batcher::Batcher::enqueue) finds that enough single calls are in flight, and queues it.
//! 2. A task takes it from its [`BatchQueue`](queue::BatchQueue) into a [`Batch`] and sends that in one EVALSHA.
//! 3. The task delivers a [`BatchOutcome`] to the caller, which has waited until its own deadline at most.
//!
//! A caller may be dropped at any time:
//!
//! | dropped | the hit |
//! |---|---|
//! | while the hit is queued | is skipped and spends nothing |
//! | while its batch is filled | is skipped and spends nothing |
//! | never, but it timed out before its batch was sent | is skipped and spends nothing |
//! | after its batch was taken from the queue | is sent, and charged if it fits; the decision is discarded |

pub(in crate::store::redis) mod batcher;
pub(in crate::store::redis) mod queue;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

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
use crate::{decision::Charged, store::contract::StoreError};

/// A batch has at most this many hits: the server serves no other client until all of them are decided.
///
/// The counts of a batch are single bytes, and `REPLY_FALLBACK` is 255, so it must stay below 255.
pub(in crate::store::redis) const MAX_HITS: usize = 64;

/// A hit whose decision is pending: the command, and the Redis keys that it charges.
///
/// It is shared by the caller and the batch, because a hit that a batch does not decide is sent again by its caller.
#[derive(Debug)]
pub(in crate::store::redis) struct PendingHit {
    /// The message.
    pub(in crate::store::redis) command: CheckCommand,
    /// One Redis key for each group of limits. A hit that can be batched has one.
    pub(in crate::store::redis) names: KeyNames,
    is_claimed: AtomicBool,
}

impl PendingHit {
    pub(in crate::store::redis) fn new(command: CheckCommand, names: KeyNames) -> PendingHit {
        PendingHit {
            command,
            names,
            is_claimed: AtomicBool::new(false),
        }
    }

    /// Claims a queued hit: its batch to send it, its caller to give it up. Returns `false` if the other was first.
    ///
    /// So a caller whose time is up knows whether the hit may be charged.
    pub(in crate::store::redis) fn claim(&self) -> bool {
        !self.is_claimed.swap(true, Ordering::AcqRel)
    }
}

/// A hit that waits to be sent in a batch, or for the reply to one.
#[derive(Debug)]
pub(in crate::store::redis) struct QueuedHit {
    /// The command and its key.
    pub(in crate::store::redis) pending: Arc<PendingHit>,
    /// The local time after which the failure mode has answered the caller.
    pub(in crate::store::redis) deadline: Instant,
    /// Delivers the outcome. Closed when the caller has timed out or is dropped. A sender that is dropped unused makes the
    /// caller time out.
    pub(in crate::store::redis) outcome: oneshot::Sender<BatchOutcome>,
}

/// Outcome of a hit that was sent in a batch.
#[derive(Debug)]
pub(in crate::store::redis) enum BatchOutcome {
    /// The batch decided the hit, or failed. The hit is not sent again.
    Decided(Result<Charged, StoreError>),
    /// Nothing was executed for the hit. Its caller sends it in a call of its own, within the same deadline.
    SendSingle {
        /// Whether the script left the key out. It would do so again.
        skip_fast_script: bool,
    },
}

impl QueuedHit {
    /// Wakes the caller with the outcome.
    fn deliver(self, outcome: BatchOutcome) {
        // The caller may have been dropped, or timed out. A charge stays then.
        let _ = self.outcome.send(outcome);
    }

    /// The Redis key. A batched hit has exactly one.
    fn name(&self) -> &str {
        &self.pending.names[0]
    }
}

/// The hits of one call, grouped by key.
///
/// All hits have the same [`BatchKey`](queue::BatchKey). The order of the keys is that of `KEYS`, of the counts and of
/// the entries of the reply.
#[derive(Debug)]
pub(in crate::store::redis) struct Batch {
    /// Each key once; at most [`MAX_HITS`] hits in all.
    keys: Vec<KeyHits>,
}

/// The hits on one key, in the order of their arrival; nearly always one.
#[derive(Debug)]
struct KeyHits {
    /// The hash of the Redis key, by a hasher of this batch, to compare keys quickly.
    hash: u64,
    /// At least one.
    hits: SmallVec<[QueuedHit; 1]>,
}

impl KeyHits {
    /// The Redis key of all these hits.
    fn name(&self) -> &str {
        self.hits[0].name()
    }
}

impl Batch {
    /// Groups hits by their Redis keys. Hits on one key keep the order in which they were queued.
    pub(in crate::store::redis) fn new(hits: Vec<QueuedHit>) -> Batch {
        let hasher = RandomState::new();
        // A linear search over at most 64 hashes needs no table.
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

    /// The message that decides the batch, which must not be empty. Its first hit stands for all, since they are equal.
    pub(in crate::store::redis) fn command(&self) -> BatchCommand<'_> {
        let count = |key: &KeyHits| u8::try_from(key.hits.len()).expect("at most `MAX_HITS`");
        let counts = self.keys.iter().map(count);
        BatchCommand::new(&self.keys[0].hits[0].pending.command, counts)
    }

    /// The policy of the first hit, and the entries of logs that the call reads at most.
    pub(in crate::store::redis) fn work(&self) -> (&Arc<str>, usize, u64) {
        let command = &self.keys[0].hits[0].pending.command;
        let hits = self.keys.iter().map(|key| key.hits.len()).sum();
        let entries = command.max_entries() * self.keys.len() as u64;
        (command.policy.shared_name(), hits, entries)
    }

    /// The Redis keys of the call, each once. In a cluster they have one hash slot.
    pub(in crate::store::redis) fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.keys.iter().map(KeyHits::name)
    }

    /// The earliest deadline: no hit may be charged after its caller got another answer. `None` for an empty batch.
    pub(in crate::store::redis) fn deadline(&self) -> Option<Instant> {
        let hits = self.keys.iter().flat_map(|key| &key.hits);
        hits.map(|hit| hit.deadline).min()
    }

    /// Claims the hits for the call. Those that their callers gave up are removed, and spend nothing.
    pub(in crate::store::redis) fn claim(&mut self) {
        for key in &mut self.keys {
            key.hits.retain(|hit| hit.pending.claim());
        }
        self.keys.retain(|key| !key.hits.is_empty());
    }

    /// Removes the hits whose deadline has passed, so that they do not make the call too late. Nothing was executed for
    /// them, which they are answered. Returns whether any hits are left.
    pub(in crate::store::redis) fn remove_expired(&mut self, now: Instant) -> bool {
        if self.deadline().is_some_and(|first| first > now) {
            return true;
        }
        let hits = std::mem::take(&mut self.keys).into_iter();
        let (in_time, expired): (Vec<_>, Vec<_>) = hits
            .flat_map(|key| key.hits)
            .partition(|hit| hit.deadline > now);
        for hit in expired {
            hit.deliver(BatchOutcome::Decided(Err(StoreError::TooLate)));
        }
        *self = Batch::new(in_time);
        !self.is_empty()
    }

    /// Delivers the decisions of a reply, which has one entry for each key, in order.
    pub(in crate::store::redis) fn deliver(self, entries: &[BatchEntry], log: &OutageLog) {
        for (key, entry) in self.keys.into_iter().zip(entries) {
            key.deliver(entry, log);
        }
    }

    /// Delivers an error to all hits. The failure mode of each decides; none is sent again.
    pub(in crate::store::redis) fn fail_all(self, error: &StoreError) {
        self.deliver_all(|| BatchOutcome::Decided(Err(error.clone())));
    }

    /// Has every hit sent by itself, because nothing was executed. Each follows redirections and gets its own error.
    pub(in crate::store::redis) fn split_up(self) {
        self.deliver_all(|| BatchOutcome::SendSingle {
            skip_fast_script: false,
        });
    }

    /// Delivers an outcome to each hit.
    fn deliver_all(self, outcome: impl Fn() -> BatchOutcome) {
        let hits = self.keys.into_iter().flat_map(|key| key.hits);
        hits.for_each(|hit| hit.deliver(outcome()));
    }
}

impl KeyHits {
    /// Delivers to each hit its decision by its position: the first ones pass.
    fn deliver(self, entry: &BatchEntry, log: &OutageLog) {
        if entry.has_replaced() {
            log.report_replaced(&self.hits[0].pending.command.policy);
        }
        for (index, hit) in self.hits.into_iter().enumerate() {
            let outcome = match entry.decision_for(index, &hit.pending.command) {
                Ok(Some(decision)) => BatchOutcome::Decided(Ok(decision)),
                // Sent again, the hit gets the error of Redis, such as WRONGTYPE, or a decision of the general script.
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

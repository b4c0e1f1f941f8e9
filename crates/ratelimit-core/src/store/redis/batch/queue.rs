//! The queue of hits that can share a batch, as a state machine without I/O.
//!
//! [`Batcher`](crate::store::redis::batch::batcher::Batcher) holds the lock around every method, and does what the
//! method returns after it has unlocked.

use std::{
    collections::VecDeque,
    hash::{Hash, Hasher},
    time::Duration,
};

use crate::store::redis::{
    batch::{MAX_HITS, QueuedHit},
    command::check::CheckCommand,
};
use crate::{
    policy::{HitMode, LimitGroup, Overdraft, Policy},
    time::Timestamp,
};

/// A queue has this many batches in flight, of any size. Hits that arrive meanwhile fill the next batch.
///
/// More than one, so that Redis decides a batch while the reply to another travels. Few, so that batches become large
/// under load.
const NEAR_BATCHES: usize = 4;
/// Redis decides a full batch in about this time: 64 hits at 160,000 a second.
const FULL_BATCH_TIME: Duration = Duration::from_micros(400);
/// Up to this many queued hits are spread over all batches, so that Redis is never idle. More fill one batch.
const SPREAD_BELOW: usize = 16;

/// Batches of one queue that may be in flight over a link with this shortest round trip.
///
/// - Near: [`NEAR_BATCHES`].
/// - Far: in addition as many as Redis decides in one round trip, the bandwidth-delay product of the link. A batch above
///   [`NEAR_BATCHES`] starts only when it is full: 54 at 20 ms and 204 at 80 ms.
/// - The round trip is the shortest of the connection, so a server that becomes slow gets no more batches.
pub(in crate::store::redis) fn max_batches(min_round_trip: Duration) -> usize {
    let on_the_way = min_round_trip.as_micros() / FULL_BATCH_TIME.as_micros();
    NEAR_BATCHES.saturating_add(usize::try_from(on_the_way).unwrap_or(usize::MAX))
}

/// The properties that hits must share for one call to decide them.
///
/// The names of keys and policies are not among them. Slot ids are not either, because hits under a concurrency limit
/// are never batched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::store::redis) struct BatchKey {
    /// The id of the connection, unique in the process: a call that hangs on a broken connection does not delay those
    /// on the next, and nodes of a cluster have separate queues.
    connection: u64,
    /// The limits, with the headroom of the throttle.
    limits: SameLimits,
    /// The cost in units. Hits on one key are counted by one division, so they have one cost.
    cost: u64,
    /// Whether the headroom may be used. It changes while the load signal of an elastic policy changes.
    overdraft: Overdraft,
    /// Dry runs and charges do not mix: one flag makes the whole call read only.
    mode: HitMode,
    /// The time of a manual clock, so that hits before and after a step of the clock do not mix.
    now: Option<Timestamp>,
    /// The hash slot of the keys, in a cluster: a script may not use keys of two.
    slot: Option<u16>,
}

impl BatchKey {
    /// The queue of a hit on a connection. `slot` is `None` outside of a cluster.
    pub(in crate::store::redis) fn new(
        connection: u64,
        command: &CheckCommand,
        slot: Option<u16>,
    ) -> BatchKey {
        BatchKey {
            connection,
            limits: SameLimits(command.policy.clone()),
            cost: command.params.cost,
            overdraft: command.params.overdraft,
            mode: command.params.mode,
            now: command.now,
            slot,
        }
    }
}

/// A policy of one key, compared by its limits. Scripts do not use the name of a policy.
///
/// Hits of policies with equal limits share batches, also across tiers and reloads of a policy file.
#[derive(Clone, Debug)]
struct SameLimits(Policy);

impl SameLimits {
    /// The only group of limits.
    fn group(&self) -> &LimitGroup {
        &self.0.groups()[0]
    }
}

impl PartialEq for SameLimits {
    /// Compares the limits, and nothing else of the policies.
    fn eq(&self, other: &SameLimits) -> bool {
        let (ours, theirs) = (self.group(), other.group());
        // Fast path: clones of one policy share their groups.
        std::ptr::eq(ours, theirs) || ours.limits == theirs.limits
    }
}

impl Eq for SameLimits {}

impl Hash for SameLimits {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Cheap and sufficient: a process has few different limits, and equality compares all numbers.
        let limits = &self.group().limits;
        (limits.len(), limits[0].limit.capacity()).hash(state);
    }
}

/// The calls in flight of one [`BatchKey`], and the hits that wait for a batch.
///
/// - A hit is sent by itself while no batch is in flight, no hit waits, and fewer than `unbatched_calls` single calls
///   are in flight.
/// - Otherwise it waits for the batch that is being filled, or for the next. A batch starts at once while fewer than
///   [`NEAR_BATCHES`] are in flight, and a full one while fewer than [`max_batches`] are.
/// - When a call completes, [`start_next`](Self::start_next) starts the next batch. Only one task at a time does so,
///   which keeps a permit that is dropped inside of it from recursion.
///
/// | event | method | calls in flight |
/// |---|---|---|
/// | a hit arrives | [`try_single`](Self::try_single), else [`push`](Self::push) | one more for `true` or a hit |
/// | a task fills its batch | [`fill`](Self::fill), then [`start`](Self::start) | one more if `start` returns a hit |
/// | a call ends | [`release`](Self::release) | one less |
/// | then, until `None` | [`start_next`](Self::start_next) | one more for each hit that it returns |
#[derive(Debug, Default)]
pub(in crate::store::redis) struct BatchQueue {
    /// Single calls in flight; at most `unbatched_calls`.
    singles: usize,
    /// Batches in flight, with the one that is being filled; at most [`max_batches`].
    batches: usize,
    /// Whether a batch was started whose hits are not taken from the queue yet. Hits that arrive join it, so no second
    /// one starts meanwhile.
    is_filling: bool,
    /// Hits that wait, the oldest first. Those of dropped callers are removed when it is their turn.
    waiting: VecDeque<QueuedHit>,
    /// Completed calls whose freed capacity has not been offered to the queue yet.
    completed: usize,
    /// Whether a task is starting the next batches.
    is_draining: bool,
}

/// The kind of a call in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum CallKind {
    /// Of one hit, by its caller.
    Single,
    /// A batch whose hits are still in the queue, but for its first one.
    Filling,
    /// A batch that was taken from the queue.
    Sent,
}

impl BatchQueue {
    /// Counts a single call, if fewer than `max_singles` are in flight and neither a batch nor a hit is before it.
    pub(in crate::store::redis) fn try_single(&mut self, max_singles: usize) -> bool {
        let is_permitted =
            self.batches == 0 && self.waiting.is_empty() && self.singles < max_singles;
        self.singles += usize::from(is_permitted);
        is_permitted
    }

    /// Queues a hit. Returns the first hit of a batch, if one may start now.
    pub(in crate::store::redis) fn push(
        &mut self,
        hit: QueuedHit,
        max_batches: usize,
    ) -> Option<QueuedHit> {
        self.waiting.push_back(hit);
        self.start(max_batches)
    }

    /// Starts a batch, if one may start. Returns its first hit, which the caller passes to [`fill`](Self::fill) later.
    pub(in crate::store::redis) fn start(&mut self, max_batches: usize) -> Option<QueuedHit> {
        let max_batches = if self.has_full_batch() {
            max_batches
        } else {
            NEAR_BATCHES
        };
        if self.is_filling || self.batches >= max_batches {
            return None;
        }
        let first = self.pop()?;
        self.is_filling = true;
        self.batches += 1;
        Some(first)
    }

    /// Whether the hits that wait fill a batch.
    pub(in crate::store::redis) fn has_full_batch(&self) -> bool {
        self.waiting.len() >= MAX_HITS
    }

    /// Takes the hits of a batch from the queue.
    ///
    /// A long queue fills the batch. A short one is divided among the first [`NEAR_BATCHES`], so that Redis has work
    /// while replies travel: ten hits become batches of 3, 3, 2 and 2.
    ///
    /// Hits whose callers were dropped are skipped, also `first`. The batch may be empty.
    pub(in crate::store::redis) fn fill(&mut self, first: QueuedHit) -> Vec<QueuedHit> {
        self.is_filling = false;
        // Hits of dropped callers are counted here and skipped below, so a batch may be smaller than its share.
        let all = 1 + self.waiting.len();
        // `batches` counts this one.
        let calls = NEAR_BATCHES.saturating_sub(self.batches) + 1;
        let share = if all > SPREAD_BELOW {
            all
        } else {
            all.div_ceil(calls)
        };
        let share = share.min(MAX_HITS);
        let mut hits = Vec::with_capacity(share);
        // The caller may have been dropped since the batch was started.
        if !first.outcome.is_closed() {
            hits.push(first);
        }
        while hits.len() < share
            && let Some(hit) = self.pop()
        {
            hits.push(hit);
        }
        hits
    }

    /// The hit that waits longest. Hits whose callers were dropped are skipped: nothing is spent for them.
    fn pop(&mut self) -> Option<QueuedHit> {
        while let Some(hit) = self.waiting.pop_front() {
            if !hit.outcome.is_closed() {
                return Some(hit);
            }
        }
        None
    }

    /// Ends a call. Returns whether the caller has to start the next batches with [`start_next`](Self::start_next).
    ///
    /// It returns `false` while another task does so. That task finds this call in `completed`.
    pub(in crate::store::redis) fn release(&mut self, kind: CallKind) -> bool {
        match kind {
            CallKind::Single => self.singles -= 1,
            CallKind::Sent => self.batches -= 1,
            CallKind::Filling => {
                self.batches -= 1;
                self.is_filling = false;
            }
        }
        self.completed += 1;
        !std::mem::replace(&mut self.is_draining, true)
    }

    /// Starts a batch in place of a completed call. Returns its first hit, or `None` when no more may start.
    ///
    /// `None` ends the duty to call it again. A completed call whose place cannot be used now is not kept: the batch
    /// that is being filled starts the next one itself.
    pub(in crate::store::redis) fn start_next(&mut self, max_batches: usize) -> Option<QueuedHit> {
        while self.completed > 0 {
            self.completed -= 1;
            let first = self.start(max_batches);
            if first.is_some() {
                return first;
            }
        }
        self.is_draining = false;
        None
    }

    /// Whether no call is in flight and no hit waits, so that the queue can be removed.
    pub(in crate::store::redis) fn is_idle(&self) -> bool {
        self.singles == 0 && self.batches == 0 && self.waiting.is_empty() && !self.is_draining
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Instant};

    use smallvec::smallvec;
    use tokio::sync::oneshot;

    use super::*;
    use crate::{
        policy::HitParams,
        store::redis::{
            batch::{Batch, BatchOutcome, PendingHit},
            command::check::Scope,
        },
    };

    fn command(limits: &str, cost: u64) -> CheckCommand {
        CheckCommand {
            policy: Policy::parse("p", limits).unwrap(),
            scope: Scope::Policy,
            params: HitParams {
                cost,
                slot: 0,
                overdraft: Overdraft::Allowed,
                mode: HitMode::Charge,
            },
            is_denied: false,
            now: None,
        }
    }

    fn hit() -> (QueuedHit, oneshot::Receiver<BatchOutcome>) {
        let (outcome, receiver) = oneshot::channel();
        let pending = PendingHit::new(command("5/s", 1), smallvec!["k".to_owned()]);
        let hit = QueuedHit {
            pending: Arc::new(pending),
            deadline: Instant::now(),
            outcome,
        };
        (hit, receiver)
    }

    #[test]
    fn the_first_hits_are_sent_singly_and_the_rest_fill_one_batch() {
        let mut queue = BatchQueue::default();
        assert!(queue.try_single(2) && queue.try_single(2) && !queue.try_single(2));
        let (hits, _receivers): (Vec<_>, Vec<_>) = (0..70).map(|_| hit()).unzip();

        let begun: Vec<QueuedHit> = hits
            .into_iter()
            .filter_map(|hit| queue.push(hit, NEAR_BATCHES))
            .collect();

        let [first] = <[QueuedHit; 1]>::try_from(begun).unwrap();
        assert_eq!(queue.fill(first).len(), MAX_HITS);
        assert!(queue.start(NEAR_BATCHES).is_some(), "some are left");
        assert!(!queue.try_single(2), "calls are shared while some are");
    }

    #[test]
    fn few_hits_are_spread_over_all_batches() {
        let mut queue = BatchQueue::default();
        let (hits, _receivers): (Vec<_>, Vec<_>) = (0..10).map(|_| hit()).unzip();
        let mut begun = None;
        for hit in hits {
            begun = begun.or(queue.push(hit, NEAR_BATCHES));
        }

        let mut sizes = Vec::new();
        while let Some(first) = begun {
            sizes.push(queue.fill(first).len());
            begun = queue.start(NEAR_BATCHES);
        }

        assert_eq!(sizes, [3, 3, 2, 2]);
    }

    #[test]
    fn at_most_four_batches_are_in_flight() {
        let mut queue = BatchQueue::default();
        let mut reply = Vec::new();
        let mut wait = |queue: &mut BatchQueue| {
            let (hit, receiver) = hit();
            reply.push(receiver);
            queue.push(hit, NEAR_BATCHES)
        };
        for _ in 0..NEAR_BATCHES {
            let first = wait(&mut queue).expect("there is room for a call");
            queue.fill(first);
        }
        assert!(wait(&mut queue).is_none());

        assert!(queue.release(CallKind::Sent));
        assert!(!queue.release(CallKind::Sent), "it is looked after already");
        let next = queue.start_next(NEAR_BATCHES).expect("one waits");
        assert_eq!(queue.fill(next).len(), 1);
        assert!(queue.start_next(NEAR_BATCHES).is_none());

        for _ in 1..NEAR_BATCHES {
            assert!(queue.release(CallKind::Sent));
            assert!(!queue.is_idle() && queue.start_next(NEAR_BATCHES).is_none());
        }
        assert!(queue.is_idle());
    }

    #[test]
    fn the_number_of_batches_follows_the_round_trip() {
        let batches = |micros| max_batches(Duration::from_micros(micros));

        assert_eq!(batches(0), NEAR_BATCHES);
        assert_eq!(batches(399), NEAR_BATCHES);
        assert_eq!(batches(400), NEAR_BATCHES + 1);
        assert_eq!(batches(20_000), 54);
        assert_eq!(batches(80_000), 204);
        assert!(max_batches(Duration::MAX) >= NEAR_BATCHES);
    }

    #[test]
    fn over_a_long_link_further_batches_start_when_they_are_full() {
        let mut queue = BatchQueue::default();
        let far = NEAR_BATCHES + 2;
        let mut receivers = Vec::new();
        let mut sizes = Vec::new();

        for _ in 0..NEAR_BATCHES + 3 * MAX_HITS {
            let (hit, receiver) = hit();
            receivers.push(receiver);
            if let Some(first) = queue.push(hit, far) {
                sizes.push(queue.fill(first).len());
            }
        }

        assert_eq!(sizes, [1, 1, 1, 1, MAX_HITS, MAX_HITS]);
        assert_eq!(queue.waiting.len(), MAX_HITS, "the bound is reached");
        assert!(queue.release(CallKind::Sent));
        let next = queue.start_next(far).expect("a full batch waits");
        assert_eq!(queue.fill(next).len(), MAX_HITS);
    }

    #[test]
    fn a_batch_that_is_dropped_while_it_is_filled_frees_its_place() {
        let mut queue = BatchQueue::default();
        let (first, _receivers) = hit();
        assert!(queue.push(first, NEAR_BATCHES).is_some());
        let (second, _receivers) = hit();
        assert!(queue.push(second, NEAR_BATCHES).is_none());

        assert!(queue.release(CallKind::Filling));

        assert!(queue.start_next(NEAR_BATCHES).is_some());
    }

    #[test]
    fn a_dropped_hit_is_not_sent() {
        let mut queue = BatchQueue::default();
        let (hits, reply): (Vec<_>, Vec<_>) = (0..9).map(|_| hit()).unzip();
        let begun: Vec<QueuedHit> = hits
            .into_iter()
            .filter_map(|hit| queue.push(hit, NEAR_BATCHES))
            .collect();
        drop(reply);

        let first = begun.into_iter().next().unwrap();

        assert_eq!(queue.fill(first).len(), 0);
        assert!(queue.start(NEAR_BATCHES).is_none());
    }

    #[test]
    fn a_hit_is_either_sent_or_given_up() {
        let (sent, _receiver) = hit();
        let (given_up, _receiver) = hit();
        let pending = [Arc::clone(&sent.pending), Arc::clone(&given_up.pending)];
        assert!(given_up.pending.claim());

        let mut batch = Batch::new(vec![sent, given_up]);
        batch.claim();

        assert_eq!(batch.work().1, 1);
        assert!(!pending[0].claim(), "it is sent, so it may be charged");
    }

    #[test]
    fn keys_are_equal_by_limits_and_costs() {
        let kind = |limits, cost| BatchKey::new(1, &command(limits, cost), None);

        assert_eq!(kind("5/s", 1), kind("5/s", 1));
        assert_ne!(kind("5/s", 1), kind("5/s", 2));
        assert_ne!(kind("5/s", 1), kind("5/min", 1));
        assert_ne!(kind("5/s", 1), kind("leaky_bucket 5/s", 1));
        assert_ne!(kind("5/s", 1), kind("5/s; 9/min", 1));
        assert_ne!(
            kind("5/s", 1),
            BatchKey::new(1, &command("5/s", 1), Some(7)),
            "one call has one hash slot"
        );
        assert_ne!(
            kind("5/s", 1),
            BatchKey::new(2, &command("5/s", 1), None),
            "a new connection has queues of its own"
        );
    }
}

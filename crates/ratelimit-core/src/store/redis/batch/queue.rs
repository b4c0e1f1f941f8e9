//! The queue of hits that can share a batch, as a state machine without I/O.

use std::{
    collections::VecDeque,
    hash::{Hash, Hasher},
};

use crate::store::redis::{
    batch::{MAX_HITS, QueuedHit},
    command::check::CheckCommand,
};
use crate::{
    policy::{HitMode, LimitGroup, Overdraft, Policy},
    time::Timestamp,
};

/// A queue has at most this many batches in flight. Hits that arrive meanwhile fill the next batch.
const MAX_BATCHES: usize = 4;
/// Below this many queued hits, they are spread over all batches so that Redis is never idle.
const SPREAD_BELOW: usize = 16;

/// What hits have in common that one call can decide.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::store::redis) struct BatchKey {
    /// The connection: a call that hangs on a broken connection does not delay those on the next.
    connection: u64,
    limits: SameLimits,
    cost: u64,
    overdraft: Overdraft,
    mode: HitMode,
    now: Option<Timestamp>,
    /// The hash slot of the keys, in a cluster.
    slot: Option<u16>,
}

impl BatchKey {
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
#[derive(Clone, Debug)]
struct SameLimits(Policy);

impl SameLimits {
    fn group(&self) -> &LimitGroup {
        &self.0.groups()[0]
    }
}

impl PartialEq for SameLimits {
    fn eq(&self, other: &SameLimits) -> bool {
        let (ours, theirs) = (self.group(), other.group());
        std::ptr::eq(ours, theirs) || ours.limits == theirs.limits
    }
}

impl Eq for SameLimits {}

impl Hash for SameLimits {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let limits = &self.group().limits;
        (limits.len(), limits[0].limit.capacity()).hash(state);
    }
}

/// The hits of one kind that are under way, and those that wait to share a call.
#[derive(Debug, Default)]
pub(in crate::store::redis) struct BatchQueue {
    singles: usize,
    /// Shared calls, with the one that is being filled.
    batches: usize,
    is_filling: bool,
    waiting: VecDeque<QueuedHit>,
    /// Calls that came back, and after which nobody has looked yet at who waits.
    completed: usize,
    is_draining: bool,
}

/// What a call is to the hits of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum CallKind {
    /// One hit's own.
    Single,
    /// Shared, and still being filled.
    Filling,
    /// Shared, and sent.
    Sent,
}

impl BatchQueue {
    /// Takes a place for a hit by itself: there is one as long as few are under way, and none waits.
    pub(in crate::store::redis) fn try_single(&mut self, most: usize) -> bool {
        let may_go = self.batches == 0 && self.waiting.is_empty() && self.singles < most;
        self.singles += usize::from(may_go);
        may_go
    }

    /// Lets a hit wait for the call that is being filled, or that takes the place of another; where
    /// one can begin at once, that is told.
    pub(in crate::store::redis) fn push(&mut self, hit: QueuedHit) -> Option<QueuedHit> {
        self.waiting.push_back(hit);
        self.start()
    }

    /// The first hit of a call that is to be filled, if there is room for one.
    pub(in crate::store::redis) fn start(&mut self) -> Option<QueuedHit> {
        if self.is_filling || self.batches >= MAX_BATCHES {
            return None;
        }
        let first = self.pop()?;
        self.is_filling = true;
        self.batches += 1;
        Some(first)
    }

    /// Fills a call with what waits: when that is much, with as much as it holds, and else with the share
    /// of one of the calls that may be under way, so that the server need not wait for us in between.
    pub(in crate::store::redis) fn fill(&mut self, first: QueuedHit) -> Vec<QueuedHit> {
        self.is_filling = false;
        let all = 1 + self.waiting.len();
        let calls = MAX_BATCHES - self.batches + 1;
        let share = if all > SPREAD_BELOW {
            all
        } else {
            all.div_ceil(calls)
        };
        let share = share.min(MAX_HITS);
        let mut hits = Vec::with_capacity(share);
        hits.push(first);
        while hits.len() < share
            && let Some(hit) = self.pop()
        {
            hits.push(hit);
        }
        hits
    }

    /// The longest waiting hit whose caller is still there.
    fn pop(&mut self) -> Option<QueuedHit> {
        while let Some(hit) = self.waiting.pop_front() {
            if !hit.outcome.is_closed() {
                return Some(hit);
            }
        }
        None
    }

    /// Gives back the place of a call; true when it is on the caller to look after those who wait.
    pub(in crate::store::redis) fn release(&mut self, sharing: CallKind) -> bool {
        match sharing {
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

    /// The first hit of a call that takes the place of one that came back; when there is none,
    /// nobody looks after the lane any more.
    pub(in crate::store::redis) fn start_next(&mut self) -> Option<QueuedHit> {
        while self.completed > 0 {
            self.completed -= 1;
            let first = self.start();
            if first.is_some() {
                return first;
            }
        }
        self.is_draining = false;
        None
    }

    /// Whether nothing is under way, and nobody waits.
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
            batch::{BatchOutcome, PendingHit},
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
        let pending = PendingHit {
            command: command("5/s", 1),
            names: smallvec!["k".to_owned()],
        };
        let hit = QueuedHit {
            pending: Arc::new(pending),
            deadline: Instant::now(),
            outcome,
        };
        (hit, receiver)
    }

    #[test]
    fn the_first_go_alone_and_the_rest_fill_one_call() {
        let mut queue = BatchQueue::default();
        assert!(queue.try_single(2) && queue.try_single(2) && !queue.try_single(2));
        let (hits, _told): (Vec<_>, Vec<_>) = (0..70).map(|_| hit()).unzip();

        let begun: Vec<QueuedHit> = hits.into_iter().filter_map(|hit| queue.push(hit)).collect();

        let [first] = <[QueuedHit; 1]>::try_from(begun).unwrap();
        assert_eq!(queue.fill(first).len(), MAX_HITS);
        assert!(queue.start().is_some(), "some are left");
        assert!(!queue.try_single(2), "calls are shared while some are");
    }

    #[test]
    fn a_few_are_spread_over_all_calls() {
        let mut queue = BatchQueue::default();
        let (hits, _told): (Vec<_>, Vec<_>) = (0..10).map(|_| hit()).unzip();
        let mut begun = None;
        for hit in hits {
            begun = begun.or(queue.push(hit));
        }

        let mut sizes = Vec::new();
        while let Some(first) = begun {
            sizes.push(queue.fill(first).len());
            begun = queue.start();
        }

        assert_eq!(sizes, [3, 3, 2, 2]);
    }

    #[test]
    fn no_more_than_so_many_calls_are_shared_at_once() {
        let mut queue = BatchQueue::default();
        let mut reply = Vec::new();
        let mut wait = |queue: &mut BatchQueue| {
            let (hit, receiver) = hit();
            reply.push(receiver);
            queue.push(hit)
        };
        for _ in 0..MAX_BATCHES {
            let first = wait(&mut queue).expect("there is room for a call");
            queue.fill(first);
        }
        assert!(wait(&mut queue).is_none());

        assert!(queue.release(CallKind::Sent));
        assert!(!queue.release(CallKind::Sent), "it is looked after already");
        let next = queue.start_next().expect("one waits");
        assert_eq!(queue.fill(next).len(), 1);
        assert!(queue.start_next().is_none());

        for _ in 1..MAX_BATCHES {
            assert!(queue.release(CallKind::Sent));
            assert!(!queue.is_idle() && queue.start_next().is_none());
        }
        assert!(queue.is_idle());
    }

    #[test]
    fn a_call_that_is_given_up_while_it_is_filled_makes_room() {
        let mut queue = BatchQueue::default();
        let (first, _told) = hit();
        assert!(queue.push(first).is_some());
        let (second, _told) = hit();
        assert!(queue.push(second).is_none());

        assert!(queue.release(CallKind::Filling));

        assert!(queue.start_next().is_some());
    }

    #[test]
    fn who_has_left_is_not_sent() {
        let mut queue = BatchQueue::default();
        let (hits, reply): (Vec<_>, Vec<_>) = (0..9).map(|_| hit()).unzip();
        let begun: Vec<QueuedHit> = hits.into_iter().filter_map(|hit| queue.push(hit)).collect();
        drop(reply);

        let first = begun.into_iter().next().unwrap();

        assert_eq!(queue.fill(first).len(), 1);
        assert!(queue.start().is_none());
    }

    #[test]
    fn kinds_are_alike_by_their_limits_and_costs() {
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

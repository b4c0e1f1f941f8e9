//! The future of a check.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use crate::limiter::{
    Limiter, Verdict, denial::with_slot_wait, deny_cache::Lookup, unchecked::InFlight,
};
use crate::{
    decision::{Decision, FastCharge},
    metrics,
    store::{Hit, LockedEntry, MemoryStore, OwnedHit, StoreError, StoreFuture},
    time::Timestamp,
};

/// A check in flight. Awaiting it gives the [`Verdict`].
///
/// - A memory store has decided before the future is polled, and charged the hit. [`take_ready`](Self::take_ready) returns
///   such a verdict without polling.
/// - Dropping a check of a Redis store before its call is sent charges nothing. Afterwards the charge stays, and a slot of a
///   concurrency limit is released.
#[must_use = "a check is made when it is awaited"]
pub struct Check(CheckState);

/// A check before and after the answer of the store.
enum CheckState {
    /// Decided by the fast path of the memory store.
    FastVerdict(Option<FastVerdict>),
    /// Decided by the general path, or the deny cache.
    Decided(Option<Verdict>),
    /// Decided by the failure mode.
    Unchecked(Option<Verdict>),
    /// The store has not answered yet.
    Pending(Box<PendingCheck>),
}

/// Result of the fast path. Small, because [`Check`] is moved into the future before it is polled.
#[derive(Clone, Copy)]
struct FastVerdict {
    charge: FastCharge,
    now: Timestamp,
    is_enforced: bool,
}

impl FastVerdict {
    #[inline]
    fn verdict(self) -> Verdict {
        let decision = Decision::from_fast_charge(self.charge, self.now);
        Verdict::Checked(decision.with_enforcement(self.is_enforced))
    }
}

/// A check whose store has not answered yet, with all that the fallback needs if it fails.
struct PendingCheck {
    decision: StoreFuture<Decision>,
    started: Instant,
    /// The versions of the budgets in the deny cache when the hit was sent.
    lookup: Option<Lookup>,
    in_flight: Option<InFlight>,
    limiter: Limiter,
    hit: OwnedHit,
}

impl Check {
    /// Starts a check on the store of `limiter`.
    #[inline(always)]
    pub(super) fn new(limiter: &Limiter, hit: &Hit<'_>) -> Check {
        match &limiter.shared.memory {
            Some(memory) => Check::start_in_memory(limiter, memory, hit),
            None => Check::start(limiter, *hit),
        }
    }

    /// Fast path for a memory store, which decides at once and never fails.
    ///
    /// A hit on one token bucket with tokens left is charged under the lock of its entry and returns four words; the
    /// [`Decision`] is built when the check is polled. Without this path a check on one token bucket costs 778 instead of
    /// 714 instructions (9 %), and one on another algorithm 46 fewer (`cargo xtask gate`).
    #[inline(always)]
    fn start_in_memory(limiter: &Limiter, memory: &MemoryStore, hit: &Hit<'_>) -> Check {
        let started = metrics::sample_start();
        let now = memory.now();
        let [group] = hit.policy.groups() else {
            warn_prefetch(limiter, hit);
            let decision = memory.check_keys(hit, now);
            return Check::finish_in_memory(limiter, hit, decision, started);
        };
        let entry = memory.lock_entry(hit, group, now);
        let charge = match entry.try_charge_fast(hit.params()) {
            Ok(charge) => charge,
            Err(entry) => return Check::start_general(limiter, hit, entry, started),
        };
        let is_enforced = Check::count_allowed(hit, started);
        Check(CheckState::FastVerdict(Some(FastVerdict {
            charge,
            now,
            is_enforced,
        })))
    }

    /// Counts a hit that a fast path allowed. Returns whether its policy enforces it.
    #[inline(always)]
    fn count_allowed(hit: &Hit<'_>, started: Option<Instant>) -> bool {
        let is_enforced = hit.policy.enforces(hit.key);
        hit.policy.metrics().count_allowed(is_enforced);
        if let Some(started) = started {
            record_duration(*hit, started);
        }
        is_enforced
    }

    /// Decides a hit that the fast path does not, on the entry that it has locked already.
    #[inline(never)]
    fn start_general(
        limiter: &Limiter,
        hit: &Hit<'_>,
        entry: LockedEntry<'_>,
        started: Option<Instant>,
    ) -> Check {
        warn_prefetch(limiter, hit);
        let decision = entry.decide(hit.params());
        Check::finish_in_memory(limiter, hit, decision, started)
    }

    /// Counts a decision of the memory store and makes it the verdict.
    #[inline(always)]
    fn finish_in_memory(
        limiter: &Limiter,
        hit: &Hit<'_>,
        mut decision: Decision,
        started: Option<Instant>,
    ) -> Check {
        if hit.policy.has_concurrency_limit() {
            decision = with_slot_wait(decision, hit);
        }
        decision.is_enforced = hit.policy.enforces(hit.key);
        if !hit.is_read_only() {
            limiter.record_decision(hit, &decision);
        }
        if let Some(started) = started {
            record_duration(*hit, started);
        }
        Check(CheckState::Decided(Some(Verdict::Checked(decision))))
    }

    /// Starts a check on any other store, unless the deny cache answers it.
    #[inline(never)]
    fn start(limiter: &Limiter, hit: Hit<'_>) -> Check {
        let started = metrics::sample_start();
        #[cfg(feature = "tokio")]
        if let Some(decision) = limiter.shared.hot_keys.try_spend(&hit) {
            return Check::finish_in_memory(limiter, &hit, decision, started);
        }
        let deny_cache = &limiter.shared.deny_cache;
        let lookup = deny_cache.start_lookup(hit);
        if let Some(denied) = lookup.and_then(|lookup| deny_cache.lookup(hit, lookup)) {
            hit.policy.metrics().count_deny_cache_hit();
            return Check::finish(limiter, hit, Ok(denied), started);
        }
        match limiter.send(hit).try_ready() {
            Ok(mut decision) => {
                deny_cache.record(hit, None, &decision);
                if let Ok(decision) = &mut decision {
                    limiter.take_reply(&hit, decision, Instant::now());
                }
                Check::finish(limiter, hit, decision, started)
            }
            Err(decision) => {
                deny_cache.enable();
                Check(CheckState::Pending(Box::new(PendingCheck {
                    decision,
                    started: Instant::now(),
                    lookup,
                    in_flight: limiter.count_in_flight(hit),
                    limiter: limiter.clone(),
                    hit: OwnedHit::new(hit),
                })))
            }
        }
    }

    /// Makes an answer of the store, or an error, the verdict.
    fn finish(
        limiter: &Limiter,
        hit: Hit<'_>,
        decision: Result<Decision, StoreError>,
        started: Option<Instant>,
    ) -> Check {
        let verdict = limiter.verdict(hit, decision);
        if let Some(started) = started {
            record_duration(hit, started);
        }
        Check(match verdict {
            Verdict::Checked(_) => CheckState::Decided(Some(verdict)),
            Verdict::Unchecked { .. } => CheckState::Unchecked(Some(verdict)),
        })
    }

    /// Takes the verdict if the store has decided already, as a memory store always has.
    ///
    /// # Panics
    ///
    /// The check is complete afterwards. Awaiting it panics.
    #[inline]
    pub fn take_ready(&mut self) -> Option<Verdict> {
        match &mut self.0 {
            CheckState::FastVerdict(verdict) => verdict.take().map(FastVerdict::verdict),
            CheckState::Decided(verdict) | CheckState::Unchecked(verdict) => verdict.take(),
            CheckState::Pending(_) => None,
        }
    }
}

impl Future for Check {
    type Output = Verdict;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Verdict> {
        match &mut self.0 {
            CheckState::FastVerdict(verdict) => {
                let verdict = verdict.take().expect("polled after completion");
                Poll::Ready(verdict.verdict())
            }
            CheckState::Decided(verdict) => {
                Poll::Ready(verdict.take().expect("polled after completion"))
            }
            CheckState::Unchecked(verdict) => {
                ready!(poll_cooperate(cx));
                Poll::Ready(verdict.take().expect("polled after completion"))
            }
            CheckState::Pending(pending) => pending.poll(cx),
        }
    }
}

impl Limiter {
    /// Takes up what the store replied to a hit: for local decisions, and for hits that are paid from memory.
    fn take_reply(&self, hit: &Hit<'_>, decision: &mut Decision, received: Instant) {
        self.record_reply(hit, decision, received);
        #[cfg(feature = "tokio")]
        self.shared.hot_keys.replied(self, hit, decision);
    }
}

impl PendingCheck {
    /// Takes up the answer: deny cache, local budgets, failure mode, metrics.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Verdict> {
        let mut decision = ready!(Pin::new(&mut self.decision).poll(cx));
        let received = Instant::now();
        let (hit, limiter) = (self.hit.as_hit(), &self.limiter);
        record_span(hit, received - self.started);
        limiter
            .shared
            .deny_cache
            .record(hit, self.lookup, &decision);
        if let Ok(decision) = &mut decision {
            limiter.take_reply(&hit, decision, received);
        }
        self.in_flight = None;
        Poll::Ready(limiter.verdict(hit, decision))
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            CheckState::Pending(_) => "Check::Pending",
            _ => "Check::Decided",
        })
    }
}

/// Lets other tasks run, from time to time, before a verdict of the failure mode is returned.
///
/// Such a verdict is ready at once. A loop of checks would never yield to the task that reconnects to Redis, which lives on
/// the runtime of its callers, and the failure mode would decide for as long as the loop runs. Tokio counts the verdicts of a
/// task like its other operations, and makes it yield after 128.
#[cold]
pub(super) fn poll_cooperate(cx: &mut Context<'_>) -> Poll<()> {
    #[cfg(feature = "tokio")]
    ready!(tokio::task::coop::poll_proceed(cx)).made_progress();
    #[cfg(not(feature = "tokio"))]
    let _ = cx;
    Poll::Ready(())
}

/// Warns once of a policy that prefetches nothing, because the store is in memory.
///
/// The fast path does not need it: the first hit on a key takes the general path.
#[inline]
fn warn_prefetch(limiter: &Limiter, hit: &Hit<'_>) {
    #[cfg(feature = "tokio")]
    if hit.policy.prefetch().is_some() {
        limiter.warn_prefetch_in_memory(hit.policy);
    }
    #[cfg(not(feature = "tokio"))]
    let _ = (limiter, hit);
}

/// Records the duration of a check. A peek is not a check.
#[inline(never)]
fn record_duration(hit: Hit<'_>, started: Instant) {
    record_span(hit, started.elapsed());
}

/// Records the duration of a check that is known.
pub(super) fn record_span(hit: Hit<'_>, span: Duration) {
    if !hit.is_read_only() {
        hit.policy.metrics().record_duration(span);
    }
}

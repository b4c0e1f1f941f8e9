//! A check under way.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use crate::limiter::{Limiter, Verdict, deny_cache::Lookup};
use crate::{
    decision::{Decision, FastCharge},
    metrics,
    store::{Hit, LockedEntry, MemoryStore, OwnedHit, StoreError, StoreFuture},
    time::Timestamp,
};

/// A check under way; awaiting it gives the [`Verdict`].
#[must_use = "a check is made when it is awaited"]
pub struct Check(CheckState);

enum CheckState {
    FastVerdict(Option<FastVerdict>),
    Decided(Option<Verdict>),
    PendingCheck(Box<PendingCheck>),
}

/// What was decided at once; in few words, because a check is moved before it is awaited.
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

/// An answer that is still to come, and what is needed should it not.
struct PendingCheck {
    answer: StoreFuture<Decision>,
    started: Instant,
    sent: Option<Lookup>,
    limiter: Limiter,
    hit: OwnedHit,
}

impl Check {
    /// Asks the store of `limiter`.
    #[inline(always)]
    pub(super) fn new(limiter: &Limiter, hit: &Hit<'_>) -> Check {
        match &limiter.shared.memory {
            Some(memory) => Check::start_in_memory(limiter, memory, hit),
            None => Check::start(limiter, *hit),
        }
    }

    /// Asks a store that answers at once and never fails.
    #[inline(always)]
    fn start_in_memory(limiter: &Limiter, memory: &MemoryStore, hit: &Hit<'_>) -> Check {
        let started = metrics::sample_start();
        let now = memory.now();
        let [group] = hit.policy.groups() else {
            let decision = memory.check_keys(hit, now);
            return Check::finish_in_memory(limiter, hit, decision, started);
        };
        let held = memory.lock_entry(hit, group, now);
        let charge = match held.try_charge_fast(hit.params()) {
            Ok(charge) => charge,
            Err(held) => return Check::start_general(limiter, hit, held, started),
        };
        let is_enforced = hit.policy.enforces(hit.key);
        hit.policy.metrics().count_allowed(is_enforced);
        if let Some(started) = started {
            record_duration(*hit, started);
        }
        Check(CheckState::FastVerdict(Some(FastVerdict {
            charge,
            now,
            is_enforced,
        })))
    }

    #[inline(never)]
    fn start_general(
        limiter: &Limiter,
        hit: &Hit<'_>,
        held: LockedEntry<'_>,
        started: Option<Instant>,
    ) -> Check {
        let decision = held.decide(hit.params());
        Check::finish_in_memory(limiter, hit, decision, started)
    }

    #[inline(always)]
    fn finish_in_memory(
        limiter: &Limiter,
        hit: &Hit<'_>,
        mut decision: Decision,
        started: Option<Instant>,
    ) -> Check {
        decision.is_enforced = hit.policy.enforces(hit.key);
        if !hit.is_read_only() {
            limiter.count_decided(hit, &decision);
        }
        if let Some(started) = started {
            record_duration(*hit, started);
        }
        Check(CheckState::Decided(Some(Verdict::Checked(decision))))
    }

    /// Asks any other store, unless it denied the same a moment ago.
    #[inline(never)]
    fn start(limiter: &Limiter, hit: Hit<'_>) -> Check {
        let started = metrics::sample_start();
        let deny_cache = &limiter.shared.deny_cache;
        let sent = deny_cache.start_lookup(hit);
        if let Some(denied) = sent.and_then(|sent| deny_cache.lookup(hit, sent)) {
            hit.policy.metrics().count_deny_cache_hit();
            return Check::finish(limiter, hit, Ok(denied), started);
        }
        match limiter.shared.store.hit(hit).try_ready() {
            Ok(answer) => {
                deny_cache.record(hit, None, &answer);
                Check::finish(limiter, hit, answer, started)
            }
            Err(answer) => {
                deny_cache.enable();
                Check(CheckState::PendingCheck(Box::new(PendingCheck {
                    answer,
                    started: Instant::now(),
                    sent,
                    limiter: limiter.clone(),
                    hit: OwnedHit::new(hit),
                })))
            }
        }
    }

    fn finish(
        limiter: &Limiter,
        hit: Hit<'_>,
        answer: Result<Decision, StoreError>,
        started: Option<Instant>,
    ) -> Check {
        let verdict = limiter.verdict(hit, answer);
        if let Some(started) = started {
            record_duration(hit, started);
        }
        Check(CheckState::Decided(Some(verdict)))
    }

    /// Takes the verdict, if it is there already: a memory store needs no waiting.
    ///
    /// A check whose verdict was taken is complete, and is not to be awaited.
    #[inline]
    pub fn take_ready(&mut self) -> Option<Verdict> {
        match &mut self.0 {
            CheckState::FastVerdict(charged) => charged.take().map(FastVerdict::verdict),
            CheckState::Decided(verdict) => verdict.take(),
            CheckState::PendingCheck(_) => None,
        }
    }
}

impl Future for Check {
    type Output = Verdict;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Verdict> {
        match &mut self.0 {
            CheckState::FastVerdict(charged) => {
                let charged = charged.take().expect("polled after completion");
                Poll::Ready(charged.verdict())
            }
            CheckState::Decided(verdict) => {
                Poll::Ready(verdict.take().expect("polled after completion"))
            }
            CheckState::PendingCheck(asking) => asking.poll(cx),
        }
    }
}

impl PendingCheck {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Verdict> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        let hit = self.hit.as_hit();
        record_duration(hit, self.started);
        self.limiter
            .shared
            .deny_cache
            .record(hit, self.sent, &answer);
        Poll::Ready(self.limiter.verdict(hit, answer))
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            CheckState::FastVerdict(_) | CheckState::Decided(_) => "Check::Decided",
            CheckState::PendingCheck(_) => "Check::Asking",
        })
    }
}

/// Tells operators how long a check took; a look is none.
#[inline(never)]
fn record_duration(hit: Hit<'_>, started: Instant) {
    if !hit.is_read_only() {
        hit.policy.metrics().record_duration(started.elapsed());
    }
}

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
    verdict::Answer,
};
use crate::{
    decision::Charged,
    metrics,
    store::{Hit, MemoryStore, OwnedHit, StoreError, StoreFuture},
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
    /// Decided; `None` once the verdict was taken.
    Ready(Option<Answer>),
    /// The store has not answered yet.
    Pending(Box<SentCheck>),
}

/// A check whose store has not answered yet, with all that the fallback needs if it fails.
struct SentCheck {
    answer: StoreFuture<Charged>,
    started: Instant,
    /// The versions of the budgets in the deny cache when the hit was sent.
    lookup: Option<Lookup>,
    in_flight: Option<InFlight>,
    limiter: Limiter,
    hit: OwnedHit,
}

impl Check {
    /// Starts a check.
    #[inline]
    pub(super) fn new(limiter: &Limiter, hit: Hit<'_>) -> Check {
        match &limiter.shared.memory {
            Some(memory) => Check::in_memory(limiter, memory, hit),
            None => Check::start(limiter, hit),
        }
    }

    /// Fast path of [`start`](Check::start): a memory store decides at once, never fails, and needs no deny cache. Without
    /// the call through the trait and its future the decision is copied four times less.
    #[inline]
    fn in_memory(limiter: &Limiter, memory: &MemoryStore, hit: Hit<'_>) -> Check {
        let started = metrics::sample_start();
        let mut charged = memory.check(&hit);
        if hit.policy.has_concurrency_limit() {
            charged = charged.map(|decision| with_slot_wait(decision, &hit));
        }
        charged.decision.is_enforced = hit.policy.enforces(hit.key);
        if !hit.is_read_only() {
            limiter.record_decision(&hit, &charged.decision);
        }
        if let Some(started) = started {
            record_duration(hit, started);
        }
        if hit.policy.prefetch().is_some() {
            limiter.shared.prefetch.announce(hit.policy);
        }
        let Charged { decision, marks } = charged;
        let verdict = Verdict::Checked(decision);
        Check(CheckState::Ready(Some(Answer { verdict, marks })))
    }

    /// Starts a check on any other store, unless prefetched units or the deny cache answer it.
    #[inline(never)]
    fn start(limiter: &Limiter, hit: Hit<'_>) -> Check {
        let started = metrics::sample_start();
        if hit.policy.prefetch().is_some()
            && let Some(decision) = limiter.shared.prefetch.try_spend(&hit)
        {
            return Check::finish(limiter, hit, Ok(decision.into()), started);
        }
        let deny_cache = &limiter.shared.deny_cache;
        let lookup = deny_cache.start_lookup(hit);
        if let Some(denied) = lookup.and_then(|lookup| deny_cache.lookup(hit, lookup)) {
            hit.policy.metrics().count_deny_cache_hit();
            return Check::finish(limiter, hit, Ok(denied.into()), started);
        }
        match limiter.send(hit).try_ready() {
            Ok(mut answer) => {
                limiter.take_answer(hit, None, &mut answer, Instant::now());
                Check::finish(limiter, hit, answer, started)
            }
            Err(answer) => {
                deny_cache.enable();
                Check(CheckState::Pending(Box::new(SentCheck {
                    answer,
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
        answer: Result<Charged, StoreError>,
        started: Option<Instant>,
    ) -> Check {
        let answer = limiter.verdict(hit, answer);
        if let Some(started) = started {
            record_duration(hit, started);
        }
        Check(CheckState::Ready(Some(answer)))
    }

    /// Takes the verdict if the store has decided already, as a memory store always has.
    ///
    /// # Panics
    ///
    /// The check is complete afterwards. Awaiting it panics.
    #[inline]
    pub fn take_ready(&mut self) -> Option<Verdict> {
        self.take_answer().map(|answer| answer.verdict)
    }

    /// Takes the answer if the store has decided already.
    #[inline]
    pub(super) fn take_answer(&mut self) -> Option<Answer> {
        match &mut self.0 {
            CheckState::Ready(answer) => answer.take(),
            CheckState::Pending(_) => None,
        }
    }

    /// The verdict with the marks of the charge, once the store has decided.
    #[inline]
    pub(super) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Answer> {
        match &mut self.0 {
            CheckState::Ready(answer) => {
                if let Some(Verdict::Unchecked { .. }) = answer.as_ref().map(|own| &own.verdict) {
                    ready!(poll_cooperate(cx));
                }
                Poll::Ready(answer.take().expect("polled after completion"))
            }
            CheckState::Pending(pending) => pending.poll(cx),
        }
    }
}

impl Future for Check {
    type Output = Verdict;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Verdict> {
        self.poll_answer(cx).map(|answer| answer.verdict)
    }
}

impl SentCheck {
    /// Takes up the answer: deny cache, local budgets, failure mode, metrics.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Answer> {
        let mut answer = ready!(Pin::new(&mut self.answer).poll(cx));
        let received = Instant::now();
        let (hit, limiter) = (self.hit.as_hit(), &self.limiter);
        record_span(hit, received - self.started);
        limiter.take_answer(hit, self.lookup, &mut answer, received);
        self.in_flight = None;
        Poll::Ready(limiter.verdict(hit, answer))
    }
}

impl Limiter {
    /// Takes up what the store replied to a hit: for the deny cache, for local decisions, and for hits that are paid from
    /// memory. An error tells them nothing.
    fn take_answer(
        &self,
        hit: Hit<'_>,
        lookup: Option<Lookup>,
        answer: &mut Result<Charged, StoreError>,
        received: Instant,
    ) {
        let Ok(Charged { decision, .. }) = answer else {
            return;
        };
        self.shared.deny_cache.record(hit, lookup, decision);
        self.record_reply(&hit, decision, received);
        if hit.policy.prefetch().is_some() {
            self.shared.prefetch.replied(self, &hit, decision);
        }
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            CheckState::Pending(_) => "Check::Pending",
            CheckState::Ready(_) => "Check::Ready",
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

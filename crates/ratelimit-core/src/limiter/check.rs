//! A check under way.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use super::{Limiter, Verdict, denials::Sent};
use crate::{
    decision::{Charge, Decision},
    keys::Keys,
    meter,
    policy::{Overdraft, Policy, Purpose},
    store::{Held, Hit, MemoryStore, StoreError, StoreFuture},
    time::Timestamp,
};

/// A check under way; awaiting it gives the [`Verdict`].
#[must_use = "a check is made when it is awaited"]
pub struct Check(Progress);

enum Progress {
    Charged(Option<Charged>),
    Decided(Option<Verdict>),
    Asking(Box<Asking>),
}

/// What was decided at once; in few words, because a check is moved before it is awaited.
#[derive(Clone, Copy)]
struct Charged {
    charge: Charge,
    now: Timestamp,
    is_enforced: bool,
}

impl Charged {
    #[inline]
    fn verdict(self) -> Verdict {
        let decision = Decision::charged(self.charge, self.now);
        Verdict::Checked(decision.enforced(self.is_enforced))
    }
}

/// An answer that is still to come, and what is needed should it not.
struct Asking {
    answer: StoreFuture<Decision>,
    started: Instant,
    sent: Option<Sent>,
    limiter: Limiter,
    asked: Asked,
}

/// A hit that belongs to itself.
pub(super) struct Asked {
    policy: Policy,
    keys: Keys,
    cost: u64,
    slot: u64,
    overdraft: Overdraft,
    purpose: Purpose,
}

impl Asked {
    pub(super) fn of(hit: Hit<'_>) -> Asked {
        Asked {
            policy: hit.policy.clone(),
            keys: hit.keys(),
            cost: hit.cost,
            slot: hit.slot,
            overdraft: hit.overdraft,
            purpose: hit.purpose,
        }
    }

    pub(super) fn holds_slots(&self) -> bool {
        self.policy.holds_slots()
    }

    pub(super) fn hit(&self) -> Hit<'_> {
        let mut hit = Hit::by(&self.policy, &self.keys);
        hit.cost = self.cost;
        hit.slot = self.slot;
        hit.overdraft = self.overdraft;
        hit.purpose = self.purpose;
        hit
    }
}

impl Check {
    /// Asks the store of `limiter`.
    #[inline(always)]
    pub(super) fn new(limiter: &Limiter, hit: &Hit<'_>) -> Check {
        match &limiter.shared.memory {
            Some(memory) => Check::in_memory(limiter, memory, hit),
            None => Check::asked(limiter, *hit),
        }
    }

    /// Asks a store that answers at once and never fails.
    #[inline(always)]
    fn in_memory(limiter: &Limiter, memory: &MemoryStore, hit: &Hit<'_>) -> Check {
        let started = meter::sampled_now();
        let now = memory.now();
        let [group] = hit.policy.groups() else {
            let decision = memory.decide_together(hit, now);
            return Check::told(limiter, hit, decision, started);
        };
        let held = memory.hold(hit, group, now);
        let charge = match held.charge_at_once(hit.asked()) {
            Ok(charge) => charge,
            Err(held) => return Check::at_length(limiter, hit, held, started),
        };
        let is_enforced = hit.policy.enforces(hit.key);
        hit.policy.meters().charged(is_enforced);
        if let Some(started) = started {
            took(*hit, started);
        }
        Check(Progress::Charged(Some(Charged {
            charge,
            now,
            is_enforced,
        })))
    }

    #[inline(never)]
    fn at_length(
        limiter: &Limiter,
        hit: &Hit<'_>,
        held: Held<'_>,
        started: Option<Instant>,
    ) -> Check {
        let decision = held.decide(hit.asked());
        Check::told(limiter, hit, decision, started)
    }

    #[inline(always)]
    fn told(
        limiter: &Limiter,
        hit: &Hit<'_>,
        mut decision: Decision,
        started: Option<Instant>,
    ) -> Check {
        decision.is_enforced = hit.policy.enforces(hit.key);
        if !hit.is_look() {
            limiter.count_decided(hit, &decision);
        }
        if let Some(started) = started {
            took(*hit, started);
        }
        Check(Progress::Decided(Some(Verdict::Checked(decision))))
    }

    /// Asks any other store, unless it denied the same a moment ago.
    #[inline(never)]
    fn asked(limiter: &Limiter, hit: Hit<'_>) -> Check {
        let started = meter::sampled_now();
        let denials = &limiter.shared.denials;
        let sent = denials.sending(hit);
        if let Some(denied) = sent.and_then(|sent| denials.recall(hit, sent)) {
            hit.policy.meters().recalled();
            return Check::decided(limiter, hit, Ok(denied), started);
        }
        match limiter.shared.store.hit(hit).into_ready() {
            Ok(answer) => {
                denials.learn(hit, None, &answer);
                Check::decided(limiter, hit, answer, started)
            }
            Err(answer) => {
                denials.begin();
                Check(Progress::Asking(Box::new(Asking {
                    answer,
                    started: Instant::now(),
                    sent,
                    limiter: limiter.clone(),
                    asked: Asked::of(hit),
                })))
            }
        }
    }

    fn decided(
        limiter: &Limiter,
        hit: Hit<'_>,
        answer: Result<Decision, StoreError>,
        started: Option<Instant>,
    ) -> Check {
        let verdict = limiter.verdict(hit, answer);
        if let Some(started) = started {
            took(hit, started);
        }
        Check(Progress::Decided(Some(verdict)))
    }

    /// Takes the verdict, if it is there already: a memory store needs no waiting.
    ///
    /// A check whose verdict was taken is complete, and is not to be awaited.
    #[inline]
    pub fn take_ready(&mut self) -> Option<Verdict> {
        match &mut self.0 {
            Progress::Charged(charged) => charged.take().map(Charged::verdict),
            Progress::Decided(verdict) => verdict.take(),
            Progress::Asking(_) => None,
        }
    }
}

impl Future for Check {
    type Output = Verdict;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Verdict> {
        match &mut self.0 {
            Progress::Charged(charged) => {
                let charged = charged.take().expect("polled after completion");
                Poll::Ready(charged.verdict())
            }
            Progress::Decided(verdict) => {
                Poll::Ready(verdict.take().expect("polled after completion"))
            }
            Progress::Asking(asking) => asking.poll(cx),
        }
    }
}

impl Asking {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Verdict> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        let hit = self.asked.hit();
        took(hit, self.started);
        self.limiter.shared.denials.learn(hit, self.sent, &answer);
        Poll::Ready(self.limiter.verdict(hit, answer))
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Progress::Charged(_) | Progress::Decided(_) => "Check::Decided",
            Progress::Asking(_) => "Check::Asking",
        })
    }
}

/// Tells operators how long a check took; a look is none.
#[inline(never)]
fn took(hit: Hit<'_>, started: Instant) {
    if !hit.is_look() {
        hit.policy.meters().took(started.elapsed());
    }
}

//! A hit as a script reads it, and the script's answer as a decision.

use std::{slice, time::Duration};

use smallvec::SmallVec;

use super::{
    answer::{
        Answer, InvalidReply, Numbers, Seen, Step, Steps, TOO_LATE, Told, answer_head,
        take_numbers, take_time,
    },
    bucket::OneBucket,
    packed::{NUMBER, push},
    script::number_count,
};
use crate::{
    algorithm::Words,
    decision::{Decision, LimitDecision},
    limit::Limit,
    policy::{Asked, Bound, Group, Policy, Purpose, capped, left_to_live},
    time::{MAX_EXACT, Timestamp},
};

const WRITE_NOTHING: u8 = 1;
pub(super) const TIME_IS_GIVEN: u8 = 2;
const IS_DENIED: u8 = 4;

/// Reading a log takes a time that grows with it.
const LONGEST_SHARED_LOG: u64 = 1_000;

/// What a script is asked.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) policy: Policy,
    pub(super) part: Part,
    pub(super) asked: Asked,
    /// Whether another key has denied the hit, so that it is only remembered here.
    pub(super) is_denied: bool,
    /// The time, where it is not the server's to tell.
    pub(super) now: Option<Timestamp>,
}

/// Which limits of a policy one call decides.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    All,
    /// Those that count by one key, the keys being spread over a cluster.
    Group(usize),
}

impl Part {
    pub(super) fn groups(self, policy: &Policy) -> &[Group] {
        match self {
            Part::All => policy.groups(),
            Part::Group(number) => slice::from_ref(&policy.groups()[number]),
        }
    }
}

impl Question {
    pub(super) fn groups(&self) -> &[Group] {
        self.part.groups(&self.policy)
    }

    fn bounds(&self) -> impl Iterator<Item = &Bound> {
        self.groups().iter().flat_map(|group| &group.bounds)
    }

    /// The first argument of the script; its layout is described in `lua/policy_head.lua`.
    pub(super) fn argument(&self, deadline: Option<Timestamp>) -> Vec<u8> {
        let mut bytes = head(
            self.write_flag() | self.time_flag() | self.denied_flag(),
            self.now,
            deadline,
            self.asked.cost,
        );
        push_limits(&mut bytes, self.groups(), self.asked);
        bytes
    }

    /// The second argument, where there is a concurrency limit.
    pub(super) fn slot(&self) -> Option<[u8; 8]> {
        let is_concurrency = |bound: &Bound| matches!(bound.limit, Limit::Concurrency(_));
        let held = self.bounds().any(is_concurrency);
        held.then(|| self.asked.slot.to_le_bytes())
    }

    /// Whether it can go into one call with others: one key, no slot, no denial that changes what the
    /// next hit finds, and no log so long that others would have to wait for it.
    pub(super) fn shares_calls(&self) -> bool {
        let is_shared = |bound: &Bound| match bound.limit {
            Limit::Concurrency(_) | Limit::PenaltyBox(_) => false,
            Limit::SlidingWindowLog(log) => {
                log.limit() <= LONGEST_SHARED_LOG && !log.is_counting_denied()
            }
            _ => true,
        };
        matches!(self.part, Part::All) && self.groups().len() == 1 && self.bounds().all(is_shared)
    }

    /// The limit, if it is the only one, and a bucket.
    pub(super) fn bucket(&self) -> Option<OneBucket<'_>> {
        let [group] = self.groups() else { return None };
        let [bound] = &*group.bounds else { return None };
        let is_bucket = matches!(bound.limit, Limit::TokenBucket(_) | Limit::LeakyBucket(_));
        is_bucket.then_some(OneBucket {
            question: self,
            bound,
        })
    }

    /// Whether it is charged when it passes.
    pub(super) fn spends(&self) -> bool {
        let asked = self.asked;
        asked.cost > 0 && asked.purpose == Purpose::Spend
    }

    pub(super) fn write_flag(&self) -> u8 {
        let asked = self.asked;
        let impossible = |bound: &Bound| !bound.limit.is_possible(bound.ask(asked));
        if self.spends() && !self.bounds().any(impossible) {
            0
        } else {
            WRITE_NOTHING
        }
    }

    pub(super) const fn time_flag(&self) -> u8 {
        match self.now {
            Some(_) => TIME_IS_GIVEN,
            None => 0,
        }
    }

    const fn denied_flag(&self) -> u8 {
        if self.is_denied { IS_DENIED } else { 0 }
    }

    /// What the script's answer means, by the arithmetic that the memory store uses.
    pub(super) fn answer(&self, answer: &[u8]) -> Result<Answer, InvalidReply> {
        let (status, now, mut rest) = answer_head(answer)?;
        let fits = match status {
            0 => false,
            1 => true,
            TOO_LATE => return Ok(Answer::TooLate { now }),
            _ => return Err(InvalidReply::Malformed),
        };
        let counts = self
            .bounds()
            .map(|bound| number_count(bound.limit.algorithm()));
        if rest.len() != NUMBER * (self.groups().len() + counts.sum::<usize>()) {
            return Err(InvalidReply::Malformed);
        }
        let expires = self.groups().iter().map(|_| take_time(&mut rest));
        let expires = expires.collect::<Result<SmallVec<[Timestamp; 1]>, InvalidReply>>()?;
        let numbers = self.numbers(&mut rest)?;
        let told = self.told(Seen {
            fits,
            now,
            expires: &expires,
            numbers: &numbers,
            before: 0,
        })?;
        Ok(Answer::Decided(told))
    }

    /// Takes the numbers of each limit; the bytes of all are taken even if one is no whole number.
    pub(super) fn numbers(&self, bytes: &mut &[u8]) -> Result<Numbers, InvalidReply> {
        let mut numbers = Ok(Numbers::new());
        for bound in self.bounds() {
            let words = match number_count(bound.limit.algorithm()) {
                2 => take_numbers(bytes).map(|[a, b]| [a, b, 0, 0]),
                3 => take_numbers(bytes).map(|[a, b, c]| [a, b, c, 0]),
                _ => take_numbers(bytes),
            };
            match (words, &mut numbers) {
                (Ok(words), Ok(numbers)) => numbers.push(words),
                (Err(InvalidReply::Malformed), _) => return Err(InvalidReply::Malformed),
                (Err(error), _) => numbers = Err(error),
                (Ok(_), Err(_)) => {}
            }
        }
        numbers
    }

    const fn charged(&self, fits: bool) -> u64 {
        match self.asked.purpose {
            Purpose::Spend if fits => self.asked.cost,
            _ => 0,
        }
    }

    /// What the numbers of one limit mean.
    fn told_by(
        &self,
        bound: &Bound,
        words: Words,
        seen: Seen<'_>,
        expires: Timestamp,
        charged: u64,
    ) -> Result<LimitDecision, InvalidReply> {
        let left = if charged > 0 {
            Duration::MAX
        } else {
            left_to_live(expires, seen.now)
        };
        let ask = bound.ask(self.asked);
        let step = bound
            .limit
            .report(words, seen.before, seen.now, ask, charged);
        let step = step.ok_or(InvalidReply::CorruptState)?;
        Ok(bound.seen(capped(step, left), charged))
    }

    /// The decision that the numbers of all limits mean, where one call decides them.
    pub(super) fn decided(&self, seen: Seen<'_>) -> Result<Decision, InvalidReply> {
        let ([group], [words], [expires]) = (self.groups(), seen.numbers, seen.expires) else {
            return Ok(self.told(seen)?.decision());
        };
        let [bound] = &*group.bounds else {
            return Err(InvalidReply::Malformed);
        };
        let told = self.told_by(bound, *words, seen, *expires, self.charged(seen.fits))?;
        if told.outcome.is_allowed() != seen.fits {
            return Err(InvalidReply::CorruptState);
        }
        Ok(Decision::new(told, seen.now))
    }

    /// What the numbers of all limits mean.
    pub(super) fn told(&self, seen: Seen<'_>) -> Result<Told, InvalidReply> {
        let Seen { fits, now, .. } = seen;
        let charged = self.charged(fits);
        let mut numbers = seen.numbers.iter();
        let mut steps = Steps::new();
        for (group, expires) in self.groups().iter().zip(seen.expires) {
            for bound in &group.bounds {
                let words = *numbers.next().ok_or(InvalidReply::Malformed)?;
                let told = |charged| self.told_by(bound, words, seen, *expires, charged);
                let after = told(charged)?;
                steps.push(Step {
                    place: bound.place,
                    told: after,
                    unspent: match self.part {
                        // Nothing that one call decides is ever given back.
                        Part::All => after,
                        Part::Group(_) => told(0)?,
                    },
                });
            }
        }
        let passed = steps.iter().all(|step| step.told.outcome.is_allowed());
        if passed == fits || self.is_denied {
            Ok(Told { now, passed, steps })
        } else {
            Err(InvalidReply::CorruptState)
        }
    }
}

/// Flags, times and a number, with which every first argument begins.
pub(super) fn head(
    flags: u8,
    now: Option<Timestamp>,
    deadline: Option<Timestamp>,
    units: u64,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + 3 * NUMBER + 2 * (5 + 4 * NUMBER));
    bytes.push(flags);
    push(&mut bytes, now.unwrap_or_default().as_micros());
    push(&mut bytes, deadline.unwrap_or_default().as_micros());
    push(&mut bytes, units.min(MAX_EXACT - 1));
    bytes
}

/// The numbers of all limits.
pub(super) fn push_limits(bytes: &mut Vec<u8>, groups: &[Group], asked: Asked) {
    for (number, group) in (0..).zip(groups) {
        for bound in &group.bounds {
            let limit = &bound.limit;
            let period = limit.ticks();
            bytes.extend([number, limit.algorithm().code()]);
            bytes.extend_from_slice(&period.grain.micros().to_le_bytes()[..3]);
            push(bytes, limit.limit());
            push(bytes, period.ticks);
            push(bytes, rate(limit));
            push(bytes, bound.ask(asked).reserve);
        }
    }
}

/// What the script knows as the limit's rate.
fn rate(limit: &Limit) -> u64 {
    match limit {
        Limit::TokenBucket(_) | Limit::LeakyBucket(_) => limit.per_period(),
        Limit::PenaltyBox(penalty) => penalty.rate(),
        _ => u64::from(limit.counts_denied()),
    }
}

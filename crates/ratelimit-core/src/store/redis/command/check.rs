//! A hit as a script reads it, and the script's answer as a decision.

use std::{slice, time::Duration};

use smallvec::SmallVec;

use crate::store::redis::{
    command::{
        check_bucket::BucketCommand,
        number::{NUMBER_BYTES, write_number},
        reply::{
            CheckAnswer, CheckReply, InvalidReply, LimitReplies, LimitReply, REPLY_TOO_LATE,
            WireReply, WireStates, read_header, read_numbers, read_time,
        },
    },
    script::wire_len,
};
use crate::{
    algorithm::WireState,
    budget::{cap_waits, remaining_ttl},
    decision::{Decision, LimitDecision},
    limit::Limit,
    policy::{EffectiveLimit, HitMode, HitParams, LimitGroup, Policy},
    time::{MAX_EXACT, Timestamp},
};

const FLAG_READ_ONLY: u8 = 1;
pub(in crate::store::redis) const FLAG_TIME_GIVEN: u8 = 2;
const FLAG_DENIED: u8 = 4;

/// Reading a log takes a time that grows with it.
const MAX_BATCHED_LOG: u64 = 1_000;

/// What a script is asked.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct CheckCommand {
    pub(in crate::store::redis) policy: Policy,
    pub(in crate::store::redis) scope: Scope,
    pub(in crate::store::redis) params: HitParams,
    /// Whether another key has denied the hit, so that it is only remembered here.
    pub(in crate::store::redis) is_denied: bool,
    /// The time, where it is not the server's to tell.
    pub(in crate::store::redis) now: Option<Timestamp>,
}

/// Which limits of a policy one call decides.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::redis) enum Scope {
    Policy,
    /// Those that count by one key, the keys being spread over a cluster.
    Group(usize),
}

impl Scope {
    pub(in crate::store::redis) fn groups(self, policy: &Policy) -> &[LimitGroup] {
        match self {
            Scope::Policy => policy.groups(),
            Scope::Group(number) => slice::from_ref(&policy.groups()[number]),
        }
    }
}

impl CheckCommand {
    pub(in crate::store::redis) fn groups(&self) -> &[LimitGroup] {
        self.scope.groups(&self.policy)
    }

    fn limits(&self) -> impl Iterator<Item = &EffectiveLimit> {
        self.groups().iter().flat_map(|group| &group.limits)
    }

    /// The first argument of the script; its layout is described in `lua/policy_head.lua`.
    pub(in crate::store::redis) fn encode(&self, deadline: Option<Timestamp>) -> Vec<u8> {
        let mut bytes = encode_header(
            self.write_nothing_flag() | self.time_flag() | self.denied_flag(),
            self.now,
            deadline,
            self.params.cost,
        );
        encode_limits(&mut bytes, self.groups(), self.params);
        bytes
    }

    /// The second argument, where there is a concurrency limit.
    pub(in crate::store::redis) fn slot(&self) -> Option<[u8; 8]> {
        let is_concurrency =
            |effective: &EffectiveLimit| matches!(effective.limit, Limit::Concurrency(_));
        let held = self.limits().any(is_concurrency);
        held.then(|| self.params.slot.to_le_bytes())
    }

    /// Whether it can go into one call with others: one key, no slot, no denial that changes what the
    /// next hit finds, and no log so long that others would have to wait for it.
    pub(in crate::store::redis) fn is_batchable(&self) -> bool {
        let is_shared = |effective: &EffectiveLimit| match effective.limit {
            Limit::Concurrency(_) | Limit::PenaltyBox(_) => false,
            Limit::SlidingWindowLog(log) => log.limit() <= MAX_BATCHED_LOG && !log.counts_denied(),
            _ => true,
        };
        matches!(self.scope, Scope::Policy)
            && self.groups().len() == 1
            && self.limits().all(is_shared)
    }

    /// The limit, if it is the only one, and a bucket.
    pub(in crate::store::redis) fn as_bucket(&self) -> Option<BucketCommand<'_>> {
        let [group] = self.groups() else { return None };
        let [effective] = &*group.limits else {
            return None;
        };
        let is_bucket = matches!(
            effective.limit,
            Limit::TokenBucket(_) | Limit::LeakyBucket(_)
        );
        is_bucket.then_some(BucketCommand {
            command: self,
            effective,
        })
    }

    /// Whether it is charged when it passes.
    pub(in crate::store::redis) fn charges(&self) -> bool {
        let params = self.params;
        params.cost > 0 && params.mode == HitMode::Charge
    }

    pub(in crate::store::redis) fn write_nothing_flag(&self) -> u8 {
        let params = self.params;
        let impossible =
            |effective: &EffectiveLimit| !effective.limit.can_ever_fit(effective.demand(params));
        if self.charges() && !self.limits().any(impossible) {
            0
        } else {
            FLAG_READ_ONLY
        }
    }

    pub(in crate::store::redis) const fn time_flag(&self) -> u8 {
        match self.now {
            Some(_) => FLAG_TIME_GIVEN,
            None => 0,
        }
    }

    const fn denied_flag(&self) -> u8 {
        if self.is_denied { FLAG_DENIED } else { 0 }
    }

    /// What the script's answer means, by the arithmetic that the memory store uses.
    pub(in crate::store::redis) fn decode(
        &self,
        answer: &[u8],
    ) -> Result<CheckAnswer, InvalidReply> {
        let (status, now, mut rest) = read_header(answer)?;
        let fits = match status {
            0 => false,
            1 => true,
            REPLY_TOO_LATE => return Ok(CheckAnswer::TooLate { now }),
            _ => return Err(InvalidReply::Malformed),
        };
        let counts = self
            .limits()
            .map(|effective| wire_len(effective.limit.algorithm()));
        if rest.len() != NUMBER_BYTES * (self.groups().len() + counts.sum::<usize>()) {
            return Err(InvalidReply::Malformed);
        }
        let expires = self.groups().iter().map(|_| read_time(&mut rest));
        let expires = expires.collect::<Result<SmallVec<[Timestamp; 1]>, InvalidReply>>()?;
        let numbers = self.read_states(&mut rest)?;
        let reply = self.reply(WireReply {
            fits,
            now,
            expires: &expires,
            numbers: &numbers,
            before: 0,
        })?;
        Ok(CheckAnswer::Decided(reply))
    }

    /// Takes the numbers of each limit; the bytes of all are taken even if one is no whole number.
    pub(in crate::store::redis) fn read_states(
        &self,
        bytes: &mut &[u8],
    ) -> Result<WireStates, InvalidReply> {
        let mut numbers = Ok(WireStates::new());
        for effective in self.limits() {
            let words = match wire_len(effective.limit.algorithm()) {
                2 => read_numbers(bytes).map(|[a, b]| [a, b, 0, 0]),
                3 => read_numbers(bytes).map(|[a, b, c]| [a, b, c, 0]),
                _ => read_numbers(bytes),
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
        match self.params.mode {
            HitMode::Charge if fits => self.params.cost,
            _ => 0,
        }
    }

    /// What the numbers of one limit mean.
    fn decode_limit(
        &self,
        effective: &EffectiveLimit,
        words: WireState,
        wire: WireReply<'_>,
        expires: Timestamp,
        charged: u64,
    ) -> Result<LimitDecision, InvalidReply> {
        let left = if charged > 0 {
            Duration::MAX
        } else {
            remaining_ttl(expires, wire.now)
        };
        let ask = effective.demand(self.params);
        let step = effective
            .limit
            .report(words, wire.before, wire.now, ask, charged);
        let step = step.ok_or(InvalidReply::CorruptState)?;
        Ok(effective.report(cap_waits(step, left), charged))
    }

    /// The decision that the numbers of all limits mean, where one call decides them.
    pub(in crate::store::redis) fn decode_single(
        &self,
        wire: WireReply<'_>,
    ) -> Result<Decision, InvalidReply> {
        let ([group], [words], [expires]) = (self.groups(), wire.numbers, wire.expires) else {
            return Ok(self.reply(wire)?.decision());
        };
        let [effective] = &*group.limits else {
            return Err(InvalidReply::Malformed);
        };
        let reply =
            self.decode_limit(effective, *words, wire, *expires, self.charged(wire.fits))?;
        if reply.outcome.is_allowed() != wire.fits {
            return Err(InvalidReply::CorruptState);
        }
        Ok(Decision::new(reply, wire.now))
    }

    /// What the numbers of all limits mean.
    pub(in crate::store::redis) fn reply(
        &self,
        wire: WireReply<'_>,
    ) -> Result<CheckReply, InvalidReply> {
        let WireReply { fits, now, .. } = wire;
        let charged = self.charged(fits);
        let mut numbers = wire.numbers.iter();
        let mut steps = LimitReplies::new();
        for (group, expires) in self.groups().iter().zip(wire.expires) {
            for effective in &group.limits {
                let words = *numbers.next().ok_or(InvalidReply::Malformed)?;
                let reply = |charged| self.decode_limit(effective, words, wire, *expires, charged);
                let after = reply(charged)?;
                steps.push(LimitReply {
                    index: effective.index,
                    reply: after,
                    unspent: match self.scope {
                        // Nothing that one call decides is ever given back.
                        Scope::Policy => after,
                        Scope::Group(_) => reply(0)?,
                    },
                });
            }
        }
        let passed = steps.iter().all(|step| step.reply.outcome.is_allowed());
        if passed == fits || self.is_denied {
            Ok(CheckReply { now, passed, steps })
        } else {
            Err(InvalidReply::CorruptState)
        }
    }
}

/// Flags, times and a number, with which every first argument begins.
pub(in crate::store::redis) fn encode_header(
    flags: u8,
    now: Option<Timestamp>,
    deadline: Option<Timestamp>,
    units: u64,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + 3 * NUMBER_BYTES + 2 * (5 + 4 * NUMBER_BYTES));
    bytes.push(flags);
    write_number(&mut bytes, now.unwrap_or_default().as_micros());
    write_number(&mut bytes, deadline.unwrap_or_default().as_micros());
    write_number(&mut bytes, units.min(MAX_EXACT - 1));
    bytes
}

/// The numbers of all limits.
pub(in crate::store::redis) fn encode_limits(
    bytes: &mut Vec<u8>,
    groups: &[LimitGroup],
    params: HitParams,
) {
    for (number, group) in (0..).zip(groups) {
        for effective in &group.limits {
            let limit = &effective.limit;
            let period = limit.period_ticks();
            bytes.extend([number, limit.algorithm().code()]);
            bytes.extend_from_slice(&period.grain.micros().to_le_bytes()[..3]);
            write_number(bytes, limit.capacity());
            write_number(bytes, period.ticks);
            write_number(bytes, wire_rate(limit));
            write_number(bytes, effective.demand(params).reserve);
        }
    }
}

/// What the script knows as the limit's rate.
fn wire_rate(limit: &Limit) -> u64 {
    match limit {
        Limit::TokenBucket(_) | Limit::LeakyBucket(_) => limit.per_period(),
        Limit::PenaltyBox(penalty) => penalty.rate(),
        _ => u64::from(limit.records_denials()),
    }
}

//! A hit on any limits: `lua/check.lua`.

use std::{iter, slice, time::Duration};

use smallvec::SmallVec;

use crate::store::redis::{
    command::{
        Reply, ScriptCommand,
        reply::{
            CheckReply, InvalidReply, LimitReplies, LimitReply, WireReply, WireStates,
            collect_states, read_header, read_numbers, read_time,
        },
    },
    script::{Script, wire_len},
    wire::{
        JOINT_MUST, MEMBER_FITS, MEMBER_REPLACED, NUMBER_BYTES, REPLY_ALLOWED, REPLY_DENIED,
        REPLY_TOO_LATE, write_number,
    },
};
use crate::{
    algorithm::WireState,
    budget::{cap_waits, remaining_ttl},
    decision::{LimitDecision, RefundMark},
    limit::Limit,
    policy::{EffectiveLimit, HitMode, HitParams, LimitGroup, Policy},
    time::{MAX_EXACT, Timestamp},
};

/// The script decides and writes nothing, also no repair and no record of a denial.
const FLAG_READ_ONLY: u8 = 1;
/// The message carries the time, and the script does not read the server's clock. The store sets it for manual clocks.
///
/// Values are then stored for an hour of the server's time, because the two clocks are unrelated.
pub(in crate::store::redis) const FLAG_TIME_GIVEN: u8 = 2;
/// The mode of a member whose hit another key denied. Limits that count denied hits record it, and no limit is charged.
///
/// Only policies whose keys a cluster separates need it. The mode of another member is [`FLAG_READ_ONLY`] or 0.
const MODE_DENIED: u8 = 2;

/// Hits on longer logs are not batched: reading a log takes time that grows with its length, and the other hits
/// of the batch would wait for it.
const MAX_BATCHED_LOG: u64 = 1_000;

/// Decides a hit, and charges it if all limits of the scope allow it.
///
/// The decision is atomic: a script runs alone on its server, and it charges all limits of the scope or none.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct CheckCommand {
    /// The policy of the key's tier. The script receives its numbers and not its name.
    pub(in crate::store::redis) policy: Policy,
    /// The limits of the policy that this call decides.
    pub(in crate::store::redis) scope: Scope,
    /// Cost in units, slot id, overdraft and mode of the hit.
    pub(in crate::store::redis) params: HitParams,
    /// Whether another key has denied the hit, so that this call only records the denial.
    pub(in crate::store::redis) is_denied: bool,
    /// The time of a manual clock; `None` for the server's clock.
    pub(in crate::store::redis) now: Option<Timestamp>,
}

/// The limits of a policy that one call decides.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::redis) enum Scope {
    /// All of them, in one call: any policy on one server, and in a cluster one whose keys share a hash slot.
    Policy,
    /// The limits of one key, by its number in the policy, where the keys are in different hash slots of a cluster.
    Group(usize),
}

impl Scope {
    /// The groups of limits of the scope. Their positions are the numbers of their keys among `KEYS`.
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

    /// The limits of the scope in the order of messages and replies: group by group.
    pub(in crate::store::redis) fn limits(&self) -> impl Iterator<Item = &EffectiveLimit> {
        self.groups().iter().flat_map(|group| &group.limits)
    }

    /// Appends the hit as a member of `lua/check.lua`. `key_numbers` are those of its keys among `KEYS`, from 1.
    ///
    /// | offset | bytes | content |
    /// |---|---|---|
    /// | 0 | 1 | the role: `JOINT_MUST`, `JOINT_ANY` or `JOINT_WATCH` |
    /// | 1 | 1 | the mode: 1 if the member is read only, 2 if another key denied the hit, else 0 |
    /// | 2 | 8 | the cost; at most 2^53 - 1 |
    /// | 10 | 1 | the number of its limits |
    /// | then | 38 for each limit | the number of its key (2 bytes), and [`encode_limit`] |
    pub(in crate::store::redis) fn encode_member(
        &self,
        role: u8,
        key_numbers: impl IntoIterator<Item = u16>,
        bytes: &mut Vec<u8>,
    ) {
        bytes.push(role);
        bytes.push(if self.is_denied {
            MODE_DENIED
        } else {
            self.read_only_flag()
        });
        write_number(bytes, self.params.cost.min(MAX_EXACT - 1));
        // A policy has at most eight limits.
        bytes.push(u8::try_from(self.limits().count()).unwrap_or(u8::MAX));
        for (group, number) in self.groups().iter().zip(key_numbers) {
            for effective in &group.limits {
                bytes.extend(number.to_le_bytes());
                encode_limit(bytes, effective, self.params);
            }
        }
    }

    /// Reads the reply to the hit as a member, and advances `bytes` behind it: one byte of `MEMBER_` flags; then for each
    /// key `expires`, in microseconds, after the call, 0 without a value; and for each of its limits `at`, in ticks, and
    /// the numbers of its algorithm before the hit.
    ///
    /// `is_charged` is whether the joint hit passes, so that a member that fits was charged.
    pub(in crate::store::redis) fn decode_member(
        &self,
        now: Timestamp,
        is_charged: bool,
        bytes: &mut &[u8],
    ) -> Result<CheckReply, InvalidReply> {
        let (&flags, rest) = bytes.split_first().ok_or(InvalidReply::Malformed)?;
        *bytes = rest;
        let fits = flags & MEMBER_FITS != 0;
        let mut expires = SmallVec::<[Timestamp; 1]>::new();
        let mut states = WireStates::new();
        for group in self.groups() {
            expires.push(read_time(bytes)?);
            states.extend(read_states(group.limits.iter(), bytes)?);
        }
        let wire = WireReply {
            fits,
            now,
            expires: &expires,
            states: &states,
            before: 0,
        };
        let mut reply = if fits && !is_charged {
            let mut uncharged = self.clone();
            uncharged.params.mode = HitMode::DryRun;
            uncharged.decode_limits(wire)?
        } else {
            self.decode_limits(wire)?
        };
        reply.has_replaced = flags & MEMBER_REPLACED != 0;
        Ok(reply)
    }

    /// Whether the hit can be sent in one call with others.
    ///
    /// It can if the policy has one key, no concurrency slot, no limit that records denials (the next hit of the
    /// batch would have to see them), and no log longer than [`MAX_BATCHED_LOG`].
    pub(in crate::store::redis) fn is_batchable(&self) -> bool {
        let is_short = |effective: &EffectiveLimit| match effective.limit {
            Limit::SlidingWindowLog(log) => log.limit() <= MAX_BATCHED_LOG,
            _ => true,
        };
        self.is_unrolled() && self.limits().all(is_short)
    }

    /// Whether `lua/check_unrolled.lua` decides the hit: the policy has one key, no concurrency slot and no limit that
    /// records denials.
    pub(in crate::store::redis) fn is_unrolled(&self) -> bool {
        let is_unrolled = |effective: &EffectiveLimit| match effective.limit {
            Limit::Concurrency(_) | Limit::PenaltyBox(_) => false,
            Limit::SlidingWindowLog(log) => !log.counts_denied(),
            _ => true,
        };
        matches!(self.scope, Scope::Policy)
            && self.groups().len() == 1
            && self.limits().all(is_unrolled)
    }

    /// The most entries of logs and slots that the call reads.
    pub(in crate::store::redis) fn max_entries(&self) -> u64 {
        self.limits()
            .map(|effective| effective.limit.max_entries())
            .sum()
    }

    /// Whether the hit is charged when it is allowed.
    pub(in crate::store::redis) fn charges(&self) -> bool {
        let params = self.params;
        params.cost > 0 && params.mode == HitMode::Charge
    }

    /// [`FLAG_READ_ONLY`] for hits that charge nothing: peeks, dry runs, and costs above a limit's capacity.
    ///
    /// An impossible hit is not a denial, so limits that count denied hits must not record it.
    pub(in crate::store::redis) fn read_only_flag(&self) -> u8 {
        let params = self.params;
        let impossible =
            |effective: &EffectiveLimit| !effective.limit.can_ever_fit(effective.demand(params));
        if self.charges() && !self.limits().any(impossible) {
            0
        } else {
            FLAG_READ_ONLY
        }
    }

    /// [`FLAG_TIME_GIVEN`] where a test gives the time.
    pub(in crate::store::redis) const fn time_flag(&self) -> u8 {
        match self.now {
            Some(_) => FLAG_TIME_GIVEN,
            None => 0,
        }
    }

    /// Reads the state of each limit: see [`read_states`].
    pub(in crate::store::redis) fn read_states(
        &self,
        bytes: &mut &[u8],
    ) -> Result<WireStates, InvalidReply> {
        read_states(self.limits(), bytes)
    }

    /// The units that the hit is charged. 0 for a peek, a dry run and a denial.
    const fn charged(&self, fits: bool) -> u64 {
        match self.params.mode {
            HitMode::Charge if fits => self.params.cost,
            _ => 0,
        }
    }

    /// The decision of one limit, by the arithmetic that the memory store uses. `expires` is that of the limit's key.
    fn decode_limit(
        &self,
        effective: &EffectiveLimit,
        state: WireState,
        wire: WireReply<'_>,
        expires: Timestamp,
        charged: u64,
    ) -> Result<(LimitDecision, RefundMark), InvalidReply> {
        // A charge has just set the expiry that the limits need. Otherwise waits end when the old value expires.
        let left = if charged > 0 {
            Duration::MAX
        } else {
            remaining_ttl(expires, wire.now)
        };
        let demand = effective.demand(self.params);
        let reported = effective
            .limit
            .report(state, wire.before, wire.now, demand, charged);
        let (mut decision, mark) = reported.ok_or(InvalidReply::CorruptState)?;
        cap_waits(&mut decision, left);
        Ok((effective.report(decision, charged), mark))
    }

    /// The decisions of all limits of the scope, in the order of the message.
    ///
    /// The script's own decision must agree with them, or the stored value is corrupt. A call with [`MODE_DENIED`] is
    /// exempt: it is denied although its own limits may allow the hit.
    pub(in crate::store::redis) fn decode_limits(
        &self,
        wire: WireReply<'_>,
    ) -> Result<CheckReply, InvalidReply> {
        let WireReply { fits, now, .. } = wire;
        let charged = self.charged(fits);
        let mut states = wire.states.iter();
        let mut limits = LimitReplies::new();
        for (group, expires) in self.groups().iter().zip(wire.expires) {
            for effective in &group.limits {
                let state = *states.next().ok_or(InvalidReply::Malformed)?;
                let decode = |charged| self.decode_limit(effective, state, wire, *expires, charged);
                let (decision, mark) = decode(charged)?;
                limits.push(LimitReply {
                    index: effective.index,
                    decision,
                    mark,
                    uncharged: match self.scope {
                        // A policy that one call decides is all or nothing, so it needs no refund.
                        Scope::Policy => decision,
                        Scope::Group(_) => decode(0)?.0,
                    },
                });
            }
        }
        let is_allowed = limits
            .iter()
            .all(|limit| limit.decision.outcome.is_allowed());
        if is_allowed == fits || self.is_denied {
            Ok(CheckReply {
                now,
                is_allowed,
                limits,
                has_replaced: false,
            })
        } else {
            Err(InvalidReply::CorruptState)
        }
    }
}

impl ScriptCommand for CheckCommand {
    type Output = CheckReply;

    fn script(&self) -> &'static Script {
        Script::check(iter::once(self.groups()))
    }

    fn uses_server_clock(&self) -> bool {
        self.now.is_none()
    }

    /// `ARGV[1]` is the hit and its limits. `ARGV[2]` is the slot id, 8 bytes, where there is a concurrency limit.
    fn encode(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        let is_concurrency =
            |effective: &EffectiveLimit| matches!(effective.limit, Limit::Concurrency(_));
        let has_slot = self.limits().any(is_concurrency);
        let slot = has_slot.then(|| self.params.slot.to_le_bytes().to_vec());
        let mut bytes = encode_header(self.time_flag(), self.now, deadline, 0);
        self.encode_member(JOINT_MUST, 1.., &mut bytes);
        [bytes].into_iter().chain(slot)
    }

    /// Reads `REPLY_DENIED` or `REPLY_ALLOWED`, now, and the member; or `REPLY_TOO_LATE` and now.
    fn decode(&self, reply: &[u8]) -> Result<Reply<CheckReply>, InvalidReply> {
        let (status, now, mut rest) = read_header(reply)?;
        match status {
            REPLY_DENIED | REPLY_ALLOWED => {}
            REPLY_TOO_LATE => return Ok(Reply::TooLate(now)),
            _ => return Err(InvalidReply::Malformed),
        }
        let reply = self.decode_member(now, true, &mut rest)?;
        if rest.is_empty() {
            Ok(Reply::Done(reply, now))
        } else {
            Err(InvalidReply::Malformed)
        }
    }
}

/// Reads the state of each limit: [`wire_len`] numbers, filled up to four with 0.
///
/// The bytes of all are consumed even if a number is not whole, so that a batch can read its next entry.
fn read_states<'a>(
    limits: impl Iterator<Item = &'a EffectiveLimit>,
    bytes: &mut &[u8],
) -> Result<WireStates, InvalidReply> {
    collect_states(
        limits.map(|effective| match wire_len(effective.limit.algorithm()) {
            2 => read_numbers(bytes).map(|[a, b]| [a, b, 0, 0]),
            3 => read_numbers(bytes).map(|[a, b, c]| [a, b, c, 0]),
            _ => read_numbers(bytes),
        }),
    )
}

/// The header of the first argument of every general script, 25 bytes.
///
/// | offset | bytes | content |
/// |---|---|---|
/// | 0 | 1 | flags: [`FLAG_TIME_GIVEN`] |
/// | 1 | 8 | now, in microseconds; 0 and not read without [`FLAG_TIME_GIVEN`] |
/// | 9 | 8 | deadline, in microseconds of the same clock; 0 for none |
/// | 17 | 8 | the units of a settlement, at most 2^53 - 1; 0 and not used for hits, whose members have a cost each |
pub(in crate::store::redis) fn encode_header(
    flags: u8,
    now: Option<Timestamp>,
    deadline: Option<Timestamp>,
    units: u64,
) -> Vec<u8> {
    // Room for two limits: most messages need no second allocation.
    let mut bytes = Vec::with_capacity(1 + 3 * NUMBER_BYTES + 2 * (5 + 4 * NUMBER_BYTES));
    bytes.push(flags);
    write_number(&mut bytes, now.unwrap_or_default().as_micros());
    write_number(&mut bytes, deadline.unwrap_or_default().as_micros());
    write_number(&mut bytes, units.min(MAX_EXACT - 1));
    bytes
}

/// Appends the parameters of all limits, group by group, 37 bytes each.
///
/// | offset | bytes | content |
/// |---|---|---|
/// | 0 | 1 | the number of the key among `KEYS`, from 0 |
/// | 1 | 1 | code of the algorithm |
/// | 2 | 3 | grain, in microseconds: 1, 1,000 or 1,000,000 |
/// | 5 | 8 | the limit or capacity, with the headroom of the throttle, in units |
/// | 13 | 8 | period or lease, in ticks of the grain |
/// | 21 | 8 | rate, see [`wire_rate`] |
/// | 29 | 8 | reserve: units that must stay free beside the cost |
pub(in crate::store::redis) fn encode_limits(
    bytes: &mut Vec<u8>,
    groups: &[LimitGroup],
    params: HitParams,
) {
    for (number, group) in (0..).zip(groups) {
        for effective in &group.limits {
            bytes.push(number);
            encode_limit(bytes, effective, params);
        }
    }
}

/// Appends the parameters of one limit behind the number of its key: the table of [`encode_limits`] from offset 1 on.
pub(in crate::store::redis) fn encode_limit(
    bytes: &mut Vec<u8>,
    effective: &EffectiveLimit,
    params: HitParams,
) {
    let limit = &effective.limit;
    let period = limit.period_ticks();
    bytes.push(limit.algorithm().code());
    // 1,000,000 fits in three bytes. The stored state begins with the same four bytes: code and grain.
    bytes.extend_from_slice(&period.grain.micros().to_le_bytes()[..3]);
    write_number(bytes, limit.capacity());
    write_number(bytes, period.ticks);
    write_number(bytes, wire_rate(limit));
    write_number(bytes, effective.demand(params).reserve);
}

/// The number that the script takes as the limit's rate; its meaning depends on the algorithm.
///
/// - Buckets: units per period, which is the debt that is forgiven each tick.
/// - Penalty box: twice the ticks of the first block, plus one if blocks double.
/// - Log: 1 if it counts denied hits, else 0. All others: 0.
pub(in crate::store::redis) fn wire_rate(limit: &Limit) -> u64 {
    match limit {
        Limit::TokenBucket(_) | Limit::LeakyBucket(_) => limit.per_period(),
        Limit::PenaltyBox(penalty) => penalty.rate(),
        _ => u64::from(limit.records_denials()),
    }
}

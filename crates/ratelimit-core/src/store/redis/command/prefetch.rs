//! A hit and further units in one step: `lua/prefetch_bucket.lua` for one bucket, `lua/prefetch.lua` for any limits.

use smallvec::SmallVec;

use crate::store::redis::{
    command::{
        Reply, ScriptCommand,
        check::{CheckCommand, encode_header, encode_limits},
        check_bucket::BucketCommand,
        reply::{
            InvalidReply, WireReply, read_header, read_number, read_numbers, read_server_time,
            read_time,
        },
    },
    script::{Script, wire_len},
    wire::{NUMBER_BYTES, REPLY_ALLOWED, REPLY_DENIED, REPLY_TOO_LATE, write_number},
};
use crate::{
    store::prefetch::{LimitShare, LimitStates, MAX_WANT, PrefetchGrant, PrefetchRequest},
    time::Timestamp,
};

/// Bytes of the reply of `lua/prefetch_bucket.lua` after the deadline: now.
const TOO_LATE_BYTES: usize = NUMBER_BYTES;
/// Bytes of its fallback: now and `REPLY_FALLBACK`.
const FALLBACK_BYTES: usize = NUMBER_BYTES + 1;
/// Bytes of any other reply of it: now, debt, expires, the debt of the units.
const DECIDED_BYTES: usize = 4 * NUMBER_BYTES;
/// The same with the tokens refunded.
const REFUNDED_BYTES: usize = 5 * NUMBER_BYTES;

/// Decides a hit, and charges as many further units as the limits give.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct PrefetchCommand {
    pub(in crate::store::redis) check: CheckCommand,
    pub(in crate::store::redis) request: PrefetchRequest,
}

/// The same for a policy whose only limit is a bucket.
#[derive(Clone, Copy)]
pub(in crate::store::redis) struct PrefetchBucketCommand<'a> {
    command: &'a PrefetchCommand,
    bucket: BucketCommand<'a>,
}

impl PrefetchCommand {
    /// The fast command, if the policy has one limit, which is a bucket.
    pub(in crate::store::redis) fn bucket(&self) -> Option<PrefetchBucketCommand<'_>> {
        let bucket = BucketCommand::new(&self.check)?;
        Some(PrefetchBucketCommand {
            command: self,
            bucket,
        })
    }

    /// The states in the order of the policy; replies have them key by key.
    fn in_policy_order(&self, states: &[[u64; 4]]) -> LimitStates {
        let mut ordered: LimitStates = SmallVec::from_elem([0; 4], states.len());
        for (effective, state) in self.check.limits().zip(states) {
            ordered[effective.index] = *state;
        }
        ordered
    }
}

impl ScriptCommand for PrefetchCommand {
    type Output = PrefetchGrant;

    fn script(&self) -> &'static Script {
        Script::prefetch(self.check.groups())
    }

    fn uses_server_clock(&self) -> bool {
        self.check.now.is_none()
    }

    /// Two arguments: the hit and its limits, as for a check, and the request with the share of each limit.
    fn encode(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        let CheckCommand { now, params, .. } = &self.check;
        let flags = self.check.prefetch_flags();
        let mut hit = encode_header(flags, *now, deadline, params.cost);
        encode_limits(&mut hit, self.check.groups(), *params);
        let mut request = Vec::new();
        let numbers = self.request.wire_numbers();
        for number in numbers {
            write_number(&mut request, number);
        }
        for effective in self.check.limits() {
            let share = LimitShare::new(effective, &self.request);
            for number in [share.cap, share.extra, share.horizon_debt, share.min_debt] {
                write_number(&mut request, number);
            }
        }
        [hit, request]
    }

    /// Reads a reply of `lua/prefetch.lua`:
    ///
    /// | offset | bytes | content |
    /// |---|---|---|
    /// | 0 | 1 | `REPLY_DENIED`, `REPLY_ALLOWED`, or `REPLY_TOO_LATE` without anything behind now |
    /// | 1 | 8 | now, in microseconds |
    /// | 9 | 8 | the further units |
    /// | 17 | 8 for each key | expires, in microseconds |
    /// | then | 8 for each number | for each limit `at`, in ticks, and the numbers of its algorithm before the hit |
    fn decode(&self, reply: &[u8]) -> Result<Reply<PrefetchGrant>, InvalidReply> {
        let (status, now, mut rest) = read_header(reply)?;
        let fits = match status {
            REPLY_DENIED => false,
            REPLY_ALLOWED => true,
            REPLY_TOO_LATE => return Ok(Reply::TooLate(now)),
            _ => return Err(InvalidReply::Malformed),
        };
        let check = &self.check;
        let lengths = check
            .limits()
            .map(|effective| wire_len(effective.limit.algorithm()));
        let numbers = 1 + check.groups().len() + lengths.sum::<usize>();
        if rest.len() != NUMBER_BYTES * numbers {
            return Err(InvalidReply::Malformed);
        }
        let units = read_number(&mut rest)?;
        let expires = check.groups().iter().map(|_| read_time(&mut rest));
        let expires = expires.collect::<Result<SmallVec<[Timestamp; 1]>, InvalidReply>>()?;
        let wire_states = check.read_states(&mut rest)?;
        let reply = check.decode_limits(WireReply {
            fits,
            now,
            expires: &expires,
            states: &wire_states,
            before: 0,
        })?;
        let ordered = self.in_policy_order(&wire_states);
        Ok(Reply::Done(
            PrefetchGrant::new(reply.decision(), units, ordered),
            now,
        ))
    }
}

impl ScriptCommand for PrefetchBucketCommand<'_> {
    /// `None` where the script left the hit to `lua/prefetch.lua`.
    type Output = Option<PrefetchGrant>;

    fn script(&self) -> &'static Script {
        Script::prefetch_bucket()
    }

    fn uses_server_clock(&self) -> bool {
        self.command.uses_server_clock()
    }

    /// One argument: that of `lua/check_bucket.lua`, with the request in front of the flags. A second argument would
    /// cost the server 1,700 instructions.
    fn encode(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        let PrefetchCommand { check, request } = self.command;
        let effective = self.bucket.effective();
        let share = LimitShare::new(effective, request);
        let plain = effective.limit.capacity() - share.extra;
        let unit = effective.limit.period_ticks().ticks;
        let [want, scarcity, ..] = request.wire_numbers();
        let numbers = [
            want.min(share.cap) * unit,
            share.cap.min(MAX_WANT) * unit,
            share.cap.div_ceil(scarcity) * unit,
            plain * unit,
            share.horizon_debt,
            share.min_debt,
            scarcity,
            share.cap,
        ];
        [self
            .bucket
            .encode_with(deadline, &numbers, check.prefetch_flags())]
    }

    /// Reads a reply of `lua/prefetch_bucket.lua`, whose length determines its meaning.
    fn decode(&self, reply: &[u8]) -> Result<Reply<Option<PrefetchGrant>>, InvalidReply> {
        let mut rest = reply;
        let now = match reply.len() {
            TOO_LATE_BYTES => return Ok(Reply::TooLate(read_server_time(&mut rest)?)),
            FALLBACK_BYTES => return Ok(Reply::Done(None, read_server_time(&mut rest)?)),
            DECIDED_BYTES | REFUNDED_BYTES => read_server_time(&mut rest)?,
            _ => return Err(InvalidReply::Malformed),
        };
        let [debt, expires, given] = read_numbers(&mut rest)?;
        let refunded = match reply.len() {
            REFUNDED_BYTES => read_number(&mut rest)?,
            _ => 0,
        };
        let period = self.bucket.effective().limit.period_ticks();
        let units = given / period.ticks;
        let states = [[period.tick(now), debt, refunded, 0]];
        let reply = self.command.check.decode_limits(WireReply {
            // The reply has no status. This is the comparison of the script, on the same numbers.
            fits: self.bucket.fits(debt),
            now,
            expires: &[Timestamp::from_micros(expires)],
            states: &states,
            before: 0,
        })?;
        let states = LimitStates::from_slice(&states);
        let grant = PrefetchGrant::new(reply.decision(), units, states);
        Ok(Reply::Done(Some(grant), now))
    }
}

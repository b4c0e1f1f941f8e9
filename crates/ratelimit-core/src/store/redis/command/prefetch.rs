//! A hit and further units in one step: `lua/prefetch.lua`.

use smallvec::SmallVec;

use crate::store::redis::{
    command::{
        Reply, ScriptCommand,
        check::{CheckCommand, encode_header, encode_limits},
        reply::{InvalidReply, WireReply, read_header, read_number, read_time},
    },
    script::{Script, wire_len},
    wire::{NUMBER_BYTES, REPLY_ALLOWED, REPLY_DENIED, REPLY_TOO_LATE, write_number},
};
use crate::{
    store::prefetch::{LimitShare, LimitStates, PrefetchGrant, PrefetchRequest},
    time::Timestamp,
};

/// Decides a hit, and charges as many further units as the limits give.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct PrefetchCommand {
    pub(in crate::store::redis) check: CheckCommand,
    pub(in crate::store::redis) request: PrefetchRequest,
}

impl PrefetchCommand {
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
            PrefetchGrant::new(reply.charged(), units, ordered),
            now,
        ))
    }
}

//! The cost of a descriptor.

use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;

/// The cost of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Charge {
    /// A request: charged if it fits, else not at all. The descriptor has no `hits_addend` of its own.
    Request(u64),
    /// A reading of something that was consumed already: recorded also beyond the limit.
    Reading(u64),
    /// Nothing is charged. The member is over if more than the limit was recorded.
    Look,
    /// Units that are given back.
    Credit(u64),
}

impl Charge {
    /// The cost of a descriptor: its own `hits_addend`, else that of the request, else `default`.
    pub(crate) fn of(descriptor: &RateLimitDescriptor, request: u32, default: u64) -> Charge {
        let cost = match u64::from(request) {
            0 => default,
            cost => cost,
        };
        match (descriptor.hits_addend, descriptor.is_negative_hits) {
            (None, true) => Charge::Credit(cost),
            (Some(units), true) => Charge::Credit(units),
            (None, false) => Charge::Request(cost),
            (Some(0), false) => Charge::Look,
            (Some(units), false) => Charge::Reading(units),
        }
    }
}

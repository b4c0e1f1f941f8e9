//! Assignments and their messages.

use std::time::Duration;

use prost_types::Duration as ProtoDuration;

use crate::{
    proto::envoy::{
        service::rate_limit_quota::v3::{
            BucketId,
            rate_limit_quota_response::{
                BucketAction,
                bucket_action::{AbandonAction, BucketAction as Action, QuotaAssignmentAction},
            },
        },
        r#type::v3::{
            RateLimitStrategy, TokenBucket,
            rate_limit_strategy::{BlanketRule, Strategy},
        },
    },
    quota::grant::GrantId,
};

/// The fill interval of a grant: Envoy refills one token in 31 years, and takes that as one in a year.
const NEVER_SECONDS: i64 = 1_000_000_000;

/// An assignment for a bucket. `ttl` is in whole seconds, at least 1: Envoy cuts fractions off, and 0 ends at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Assignment {
    /// Exactly `units` requests may pass, whatever the bucket had left before.
    Grant {
        /// The requests, at most 2^32 - 1.
        units: u64,
        /// The number of the grant.
        id: GrantId,
        /// The life of the assignment.
        ttl: Duration,
    },
    /// The grant with this number lives on with what it has left.
    Extension {
        /// The requests of the grant.
        units: u64,
        /// The number of the grant.
        id: GrantId,
        /// The life of the assignment.
        ttl: Duration,
    },
    /// Nothing passes.
    DenyAll {
        /// The life of the assignment.
        ttl: Duration,
    },
    /// Everything passes.
    AllowAll {
        /// The life of the assignment.
        ttl: Duration,
    },
}

impl Assignment {
    /// Appends the messages of the assignment, which Envoy applies in order and in one step.
    ///
    /// A blanket rule throws the token bucket of the assignment before away. So a grant is two messages: without the
    /// first the new bucket would start with a part of what the old one had left.
    pub fn write_to(self, bucket: &BucketId, actions: &mut Vec<BucketAction>) {
        let mut add = |strategy: Strategy, ttl: Duration| {
            let action = Action::QuotaAssignmentAction(QuotaAssignmentAction {
                assignment_time_to_live: Some(seconds(ttl)),
                rate_limit_strategy: Some(RateLimitStrategy {
                    strategy: Some(strategy),
                }),
            });
            actions.push(BucketAction {
                bucket_id: Some(bucket.clone()),
                bucket_action: Some(action),
            });
        };
        let deny = Strategy::BlanketRule(BlanketRule::DenyAll.into());
        match self {
            Assignment::Grant { units, id, ttl } => {
                add(deny, ttl);
                add(Strategy::TokenBucket(token_bucket(units, id)), ttl);
            }
            Assignment::Extension { units, id, ttl } => {
                add(Strategy::TokenBucket(token_bucket(units, id)), ttl);
            }
            Assignment::DenyAll { ttl } => add(deny, ttl),
            Assignment::AllowAll { ttl } => {
                add(Strategy::BlanketRule(BlanketRule::AllowAll.into()), ttl);
            }
        }
    }
}

/// The message that a bucket is abandoned.
pub fn abandon(bucket: &BucketId) -> BucketAction {
    BucketAction {
        bucket_id: Some(bucket.clone()),
        bucket_action: Some(Action::AbandonAction(AbandonAction {})),
    }
}

fn token_bucket(units: u64, id: GrantId) -> TokenBucket {
    TokenBucket {
        max_tokens: u32::try_from(units).unwrap_or(u32::MAX).max(1),
        tokens_per_fill: Some(1),
        fill_interval: Some(ProtoDuration {
            seconds: NEVER_SECONDS,
            nanos: i32::try_from(id.0).unwrap_or(i32::MAX),
        }),
    }
}

fn seconds(ttl: Duration) -> ProtoDuration {
    ProtoDuration {
        seconds: i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX),
        nanos: 0,
    }
}

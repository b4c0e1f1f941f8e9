//! The quota filter of Envoy 1.40, as it was measured.
//!
//! - A token bucket starts full. If the assignment before was a token bucket too, it keeps what is left when maximum, fill
//!   and nanoseconds are equal, and scales it otherwise.
//! - A blanket rule throws the token bucket away.
//! - The life of an assignment is in whole seconds. A bucket without an assignment denies or allows everything.
//! - The first request is reported at once, and then all requests every 5 seconds. Requests that are counted while there
//!   is no stream are lost. A new stream is opened at the next report.

use ratelimit_core::Timestamp;
use ratelimit_envoy::{
    proto::envoy::{
        service::rate_limit_quota::v3::{
            BucketId,
            rate_limit_quota_response::{BucketAction, bucket_action::BucketAction as Action},
        },
        r#type::v3::{
            TokenBucket,
            rate_limit_strategy::{BlanketRule, Strategy},
        },
    },
    quota::Assignment,
};

pub(crate) const REPORT_MICROS: u64 = 5_000_000;

#[derive(Clone, Debug)]
enum Assigned {
    Nothing,
    Blanket(BlanketRule, Timestamp),
    Tokens {
        bucket: TokenBucket,
        left: u32,
        expires: Timestamp,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct EnvoyModel {
    assigned: Assigned,
    allows_without_assignment: bool,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) is_known: bool,
    pub(crate) next_report: Timestamp,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    No,
    ByGrant,
    WithoutAssignment,
}

impl EnvoyModel {
    pub(crate) fn new(allows_without_assignment: bool, first_tick: Timestamp) -> EnvoyModel {
        EnvoyModel {
            assigned: Assigned::Nothing,
            allows_without_assignment,
            allowed: 0,
            denied: 0,
            is_known: false,
            next_report: first_tick,
        }
    }

    pub(crate) fn request(&mut self, now: Timestamp) -> Passed {
        if let Assigned::Blanket(_, expires) | Assigned::Tokens { expires, .. } = &self.assigned
            && now >= *expires
        {
            self.assigned = Assigned::Nothing;
        }
        let passed = match &mut self.assigned {
            Assigned::Blanket(BlanketRule::AllowAll, _) => Passed::WithoutAssignment,
            Assigned::Nothing if self.allows_without_assignment => Passed::WithoutAssignment,
            Assigned::Nothing | Assigned::Blanket(..) | Assigned::Tokens { left: 0, .. } => {
                Passed::No
            }
            Assigned::Tokens { left, .. } => {
                *left -= 1;
                Passed::ByGrant
            }
        };
        match passed {
            Passed::No => self.denied += 1,
            _ => self.allowed += 1,
        }
        passed
    }

    /// Applies the messages of an assignment in one step.
    pub(crate) fn assign(&mut self, assignment: Assignment, now: Timestamp) {
        let mut actions = Vec::new();
        assignment.write_to(&BucketId::default(), &mut actions);
        for action in actions {
            self.apply(&action, now);
        }
    }

    fn apply(&mut self, action: &BucketAction, now: Timestamp) {
        let Some(Action::QuotaAssignmentAction(action)) = &action.bucket_action else {
            return;
        };
        let ttl = action.assignment_time_to_live.as_ref().unwrap();
        assert!(ttl.seconds >= 1 && ttl.nanos == 0, "{ttl:?}");
        let ttl = u64::try_from(ttl.seconds).unwrap() * 1_000_000;
        let expires = Timestamp::from_micros(now.as_micros() + ttl);
        self.assigned = match action.rate_limit_strategy.unwrap().strategy.unwrap() {
            Strategy::BlanketRule(rule) => {
                Assigned::Blanket(BlanketRule::try_from(rule).unwrap(), expires)
            }
            Strategy::TokenBucket(bucket) => {
                assert!(bucket.max_tokens > 0);
                // An assignment that has ended is gone: the next bucket is full.
                let left = match &self.assigned {
                    Assigned::Tokens {
                        bucket: old,
                        left,
                        expires,
                    } if now < *expires => kept(old, *left, &bucket),
                    _ => bucket.max_tokens,
                };
                Assigned::Tokens {
                    bucket,
                    left,
                    expires,
                }
            }
            Strategy::RequestsPerTimeUnit(_) => panic!("Envoy ignores it"),
        };
    }

    /// Takes the counts of a report.
    pub(crate) fn take_counts(&mut self) -> (u64, u64) {
        (
            std::mem::take(&mut self.allowed),
            std::mem::take(&mut self.denied),
        )
    }
}

/// The tokens of a bucket that replaces another.
fn kept(old: &TokenBucket, left: u32, new: &TokenBucket) -> u32 {
    let nanos = |bucket: &TokenBucket| bucket.fill_interval.as_ref().unwrap().nanos;
    let is_same = old.max_tokens == new.max_tokens
        && old.tokens_per_fill == new.tokens_per_fill
        && nanos(old) == nanos(new);
    if is_same {
        return left;
    }
    let scaled = u64::from(new.max_tokens) * u64::from(left) / u64::from(old.max_tokens);
    u32::try_from(scaled).unwrap()
}

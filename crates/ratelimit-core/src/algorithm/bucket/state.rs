//! The stored state of a bucket, of either kind.

use crate::algorithm::bucket::{Bucket, BucketState, RefundedBucketState};
use crate::algorithm::{Algorithm, State};

impl Bucket {
    /// Whether a state is of this kind of bucket.
    #[inline]
    pub(super) fn owns(&self, state: &State) -> bool {
        match (self.algorithm, state) {
            (Algorithm::TokenBucket, State::TokenBucket(_))
            | (Algorithm::LeakyBucket, State::LeakyBucket(_)) => true,
            (algorithm, State::RefundedBucket(refunded)) => refunded.algorithm == algorithm,
            _ => false,
        }
    }

    /// The smallest state that holds the debt: boxed with the count of refunds only if there are any.
    #[inline]
    pub(super) fn stored_state(&self, debt: BucketState, refunded: u64) -> State {
        match self.algorithm {
            algorithm if refunded > 0 => State::RefundedBucket(Box::new(RefundedBucketState {
                algorithm,
                debt,
                refunded,
            })),
            Algorithm::LeakyBucket => State::LeakyBucket(debt),
            _ => State::TokenBucket(debt),
        }
    }
}

/// The debt of a bucket of either kind, and its count of refunded tokens.
#[inline]
pub(super) fn debt_of_state(state: &State) -> Option<(BucketState, u64)> {
    match state {
        State::TokenBucket(debt) | State::LeakyBucket(debt) => Some((*debt, 0)),
        State::RefundedBucket(refunded) => Some((refunded.debt, refunded.refunded)),
        _ => None,
    }
}

//! The stored state of a bucket, of either kind.

use crate::algorithm::bucket::{Bucket, BucketState, RefundedBucketState};
use crate::algorithm::{Algorithm, State};

impl Bucket {
    /// The debt of a bucket of this kind, and its count of refunded tokens. `None` for any other state.
    #[inline]
    pub(super) fn debt_of(&self, state: &State) -> Option<(BucketState, u64)> {
        match (self.algorithm, state) {
            (Algorithm::TokenBucket, State::TokenBucket(debt))
            | (Algorithm::LeakyBucket, State::LeakyBucket(debt)) => Some((*debt, 0)),
            (algorithm, State::RefundedBucket(own)) if own.algorithm == algorithm => {
                Some((own.debt, own.refunded))
            }
            _ => None,
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

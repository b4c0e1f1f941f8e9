//! The stored state of a bucket, of either kind.

use crate::algorithm::bucket::{Bucket, BucketState, RefundedBucketState};
use crate::algorithm::{Algorithm, State};

impl Bucket {
    /// The state of a bucket of this kind, and its count of refunded tokens. `None` for any other state.
    #[inline]
    pub(super) fn bucket_of(&self, state: &State) -> Option<(BucketState, u64)> {
        match (self.algorithm, state) {
            (Algorithm::TokenBucket, State::TokenBucket(bucket))
            | (Algorithm::LeakyBucket, State::LeakyBucket(bucket)) => Some((*bucket, 0)),
            (algorithm, State::RefundedBucket(own)) if own.algorithm == algorithm => {
                Some((own.bucket, own.refunded))
            }
            _ => None,
        }
    }

    /// The smallest state that holds the bucket: boxed with the count of refunds only if there are any.
    #[inline]
    pub(super) fn stored_state(&self, bucket: BucketState, refunded: u64) -> State {
        match self.algorithm {
            algorithm if refunded > 0 => State::RefundedBucket(Box::new(RefundedBucketState {
                algorithm,
                bucket,
                refunded,
            })),
            Algorithm::LeakyBucket => State::LeakyBucket(bucket),
            _ => State::TokenBucket(bucket),
        }
    }
}

//! Changed rules on an open stream.

use std::sync::Arc;

use ratelimit_envoy::quota::QuotaHolder;

use super::{
    buckets::{BucketState, UNMATCHED_TTL, blanket},
    metrics::count_ungranted,
    stream::{QuotaStream, StreamEnded},
};

impl QuotaStream {
    /// Grants the buckets of changed rules anew.
    pub(super) async fn reload(&mut self) -> Result<(), StreamEnded> {
        let rules = Arc::clone(&self.rules.borrow_and_update());
        let now = self.context.now();
        let (mut work, mut actions) = (Vec::new(), Vec::new());
        for key in self.buckets.keys() {
            let Some(bucket) = self.buckets.get_mut(&key) else {
                continue;
            };
            let target = rules.quota_target(&self.domain, &bucket.id);
            match (&mut bucket.state, target) {
                (BucketState::Matched(holder), Some(target)) => {
                    let is_same = |holder: &QuotaHolder| holder.target().is_same(&target);
                    if !holder.as_deref().is_some_and(is_same)
                        && let Some(mut holder) = holder.take()
                    {
                        let due = holder.change_target(target, now);
                        work.push((key, holder, due));
                    }
                }
                (BucketState::Matched(_), None) => {
                    bucket.count_forfeited();
                    bucket.state = BucketState::Unmatched {
                        assigned_until: now + UNMATCHED_TTL,
                        active_at: now,
                    };
                    count_ungranted("unmatched");
                    blanket(&rules, UNMATCHED_TTL).write_to(&bucket.id, &mut actions);
                }
                (state @ BucketState::Unmatched { .. }, Some(target)) => {
                    let holders = Arc::clone(&self.context.holders);
                    let mut holder = Box::new(QuotaHolder::new(target, holders, now));
                    *state = BucketState::Matched(None);
                    let due = holder.bucket_mut().report(now, 0, 0);
                    work.push((key, holder, due));
                }
                (BucketState::Unmatched { assigned_until, .. }, None) => {
                    *assigned_until = now + UNMATCHED_TTL;
                    blanket(&rules, UNMATCHED_TTL).write_to(&bucket.id, &mut actions);
                }
            }
        }
        self.perform(work, actions).await
    }
}

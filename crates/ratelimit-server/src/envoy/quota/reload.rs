//! Changed rules on an open stream.

use std::sync::Arc;

use ratelimit_envoy::quota::QuotaHolder;
use tokio::task::yield_now;

use super::{
    buckets::{BucketState, UNMATCHED_TTL, blanket},
    metrics::{count_lost, count_ungranted},
    report::YIELD_EVERY,
    stream::{QuotaStream, StreamEnded},
};

impl QuotaStream {
    /// Grants the buckets of changed rules anew.
    pub(super) async fn reload(&mut self) -> Result<(), StreamEnded> {
        let rules = Arc::clone(&self.rules.borrow_and_update());
        let now = self.context.now();
        let (mut work, mut actions) = (Vec::new(), Vec::new());
        for (index, key) in self.buckets.keys().into_iter().enumerate() {
            if index % YIELD_EVERY == YIELD_EVERY - 1 {
                yield_now().await;
            }
            let held = self.buckets.take_holder(&key);
            let Some(bucket) = self.buckets.get_mut(&key) else {
                continue;
            };
            match (held, rules.quota_target(&self.domain, &bucket.id)) {
                (Some(holder), Some(target)) if holder.target().is_same(&target) => {
                    self.buckets.put_back(key, holder);
                }
                (Some(mut holder), Some(target)) => {
                    let due = vec![holder.change_target(target)];
                    work.push((key, holder, due));
                }
                (None, Some(target)) => {
                    let holders = Arc::clone(&self.context.holders);
                    let mut holder = Box::new(QuotaHolder::new(target, holders, now));
                    bucket.state = BucketState::Matched(None);
                    let due = holder.bucket_mut().report(now, 0, 0);
                    work.push((key, holder, due));
                }
                (held, None) => {
                    if let Some(holder) = held {
                        count_lost(&holder);
                        count_ungranted("unmatched");
                    }
                    let active_at = match bucket.state {
                        BucketState::Unmatched { active_at, .. } => active_at,
                        BucketState::Matched(_) => now,
                    };
                    bucket.state = BucketState::Unmatched {
                        assigned_until: now + UNMATCHED_TTL,
                        active_at,
                    };
                    blanket(&rules, UNMATCHED_TTL).write_to(&bucket.id, &mut actions);
                }
            }
        }
        self.perform(work, actions).await
    }
}

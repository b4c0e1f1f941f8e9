//! The usages of reports, bucket by bucket.

use std::{collections::HashMap, sync::Arc, time::Duration};

use ratelimit_envoy::{
    Rules,
    proto::envoy::service::rate_limit_quota::v3::{
        BucketId, rate_limit_quota_response::BucketAction,
    },
    quota::{Assignment, QuotaAction, QuotaHolder, QuotaTarget},
};
use tokio::task::yield_now;

use super::{
    buckets::{Bucket, BucketKey, BucketState, UNMATCHED_TTL, blanket},
    metrics::{count_ungranted, count_units},
    report::{Usage, YIELD_EVERY},
    stream::{QuotaStream, Work},
};

/// The assignment of a bucket without a rule is renewed this long before its end.
const UNMATCHED_RENEWAL: Duration = Duration::from_secs(60);

/// A bucket without a rule is abandoned after this time without requests.
const UNMATCHED_MAX_IDLE: Duration = Duration::from_secs(60);

/// The life of the assignment of a bucket for which there is no room. It is sent with each report.
const OVERFLOW_TTL: Duration = Duration::from_secs(10);

/// The most buckets of a pass that are recorded and not kept.
const MAX_UNKEPT: usize = 10_000;

/// The work and the messages of a batch of reports.
struct Intake {
    rules: Arc<Rules>,
    work: Vec<Work>,
    actions: Vec<BucketAction>,
    /// Buckets that are recorded and not kept.
    unkept: usize,
}

impl QuotaStream {
    /// Applies the usages of a batch. Returns the work of buckets with a rule, and the messages to others.
    pub(super) async fn take_usages(
        &mut self,
        usages: HashMap<BucketKey, Usage>,
    ) -> (Vec<Work>, Vec<BucketAction>) {
        let mut intake = Intake {
            rules: Arc::clone(&self.rules.borrow()),
            work: Vec::new(),
            actions: Vec::new(),
            unkept: 0,
        };
        for (index, (key, usage)) in usages.into_iter().enumerate() {
            if index % YIELD_EVERY == YIELD_EVERY - 1 {
                yield_now().await;
            }
            if !key.is_text() {
                // Envoy sends header values with any bytes. Its decoder takes only UTF-8, and a response with other bytes
                // ends the stream with all of its buckets.
                count_ungranted("not_utf8");
                if let Some(target) = intake.rules.quota_target(&self.domain, &usage.id) {
                    self.record_unkept(key, &usage, target, &mut intake);
                }
            } else if self.buckets.contains(&key) || self.has_room(&mut intake) {
                self.take_usage(key, &usage, &mut intake);
            } else {
                self.overflow(key, &usage, &mut intake);
            }
        }
        (intake.work, intake.actions)
    }

    /// Charges the requests of a bucket that is not kept.
    fn record_unkept(
        &self,
        key: BucketKey,
        usage: &Usage,
        target: QuotaTarget,
        intake: &mut Intake,
    ) {
        if usage.allowed == 0 {
            return;
        }
        if intake.unkept >= MAX_UNKEPT {
            count_units(target.policy_name(), "unrecorded", usage.allowed);
            return;
        }
        intake.unkept += 1;
        let holders = Arc::clone(&self.context.holders);
        let now = self.context.timestamp(usage.arrived);
        let holder = Box::new(QuotaHolder::new(target, holders, now));
        let due = vec![QuotaAction::Record(usage.allowed)];
        intake.work.push((key, holder, due));
    }

    /// Whether there is room for another bucket: the longest idle one is abandoned if there are too many.
    fn has_room(&mut self, intake: &mut Intake) -> bool {
        if self.buckets.is_full()
            && let Some(idle) = self.buckets.pop_idle(self.context.now())
        {
            self.abandon(&idle, &mut intake.actions);
        }
        !self.buckets.is_full()
    }

    /// Denies a bucket with a rule for which there is no room, and charges its requests.
    fn overflow(&mut self, key: BucketKey, usage: &Usage, intake: &mut Intake) {
        count_ungranted("overflow");
        let ttl = OVERFLOW_TTL;
        let target = intake.rules.quota_target(&self.domain, &usage.id);
        let assignment = match &target {
            Some(target) if target.is_enforced() => Assignment::DenyAll { ttl },
            Some(_) => Assignment::AllowAll { ttl },
            None => blanket(&intake.rules, ttl),
        };
        assignment.write_to(&usage.id, &mut intake.actions);
        if let Some(target) = target {
            self.record_unkept(key, usage, target, intake);
        }
    }

    /// Applies the requests of a bucket, which is added if it is new.
    fn take_usage(&mut self, key: BucketKey, usage: &Usage, intake: &mut Intake) {
        let now = self.context.timestamp(usage.arrived);
        if !self.buckets.contains(&key) {
            self.add(&usage.id, usage, &intake.rules);
        }
        if let Some(mut holder) = self.buckets.take_holder(&key) {
            let due = holder.bucket_mut().report(now, usage.allowed, usage.denied);
            let unassigned = due.iter().map(|action| match action {
                QuotaAction::Record(requests) => *requests,
                _ => 0,
            });
            let used = usage.allowed - unassigned.sum::<u64>();
            count_units(holder.target().policy_name(), "used", used);
            intake.work.push((key, holder, due));
            return;
        }
        let Some(bucket) = self.buckets.get_mut(&key) else {
            return;
        };
        let BucketState::Unmatched {
            assigned_until,
            active_at,
        } = &mut bucket.state
        else {
            return;
        };
        if usage.allowed > 0 || usage.denied > 0 {
            *active_at = now;
        }
        if now.since(*active_at) >= UNMATCHED_MAX_IDLE {
            self.abandon(&key, &mut intake.actions);
        } else if assigned_until.since(now) < UNMATCHED_RENEWAL {
            *assigned_until = now + UNMATCHED_TTL;
            blanket(&intake.rules, UNMATCHED_TTL).write_to(&bucket.id, &mut intake.actions);
        }
    }

    fn add(&mut self, id: &BucketId, usage: &Usage, rules: &Rules) {
        let now = self.context.timestamp(usage.arrived);
        let state = if let Some(target) = rules.quota_target(&self.domain, id) {
            let holders = Arc::clone(&self.context.holders);
            BucketState::Matched(Some(Box::new(QuotaHolder::new(target, holders, now))))
        } else {
            count_ungranted("unmatched");
            BucketState::Unmatched {
                assigned_until: now,
                active_at: now,
            }
        };
        self.buckets.insert(Bucket::new(id, state));
    }
}

//! The buckets of one stream.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use ratelimit_core::Timestamp;
use ratelimit_envoy::{
    Rules, UnmatchedBuckets,
    proto::envoy::service::rate_limit_quota::v3::BucketId,
    quota::{Assignment, QuotaHolder},
};

use super::metrics::count_units;

/// The most buckets of a stream.
pub(super) const MAX_BUCKETS: usize = 100_000;

/// The life of the assignment of a bucket without a rule.
pub(super) const UNMATCHED_TTL: Duration = Duration::from_secs(300);

/// The most bytes of bucket ids of a stream.
const MAX_ID_BYTES: usize = 64 << 20;

/// The identity of a bucket: its entries in the order of their keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct BucketKey(Arc<[(Bytes, Bytes)]>);

impl BucketKey {
    pub(super) fn new(id: &BucketId) -> BucketKey {
        let entries = id.bucket.iter();
        let mut entries: Vec<(Bytes, Bytes)> = entries
            .map(|entry| (entry.key.clone(), entry.value.clone()))
            .collect();
        entries.sort_unstable();
        BucketKey(entries.into())
    }

    /// Whether all keys and values are UTF-8.
    pub(super) fn is_text(&self) -> bool {
        let is_text = |bytes: &Bytes| str::from_utf8(bytes).is_ok();
        self.0
            .iter()
            .all(|(key, value)| is_text(key) && is_text(value))
    }

    fn bytes(&self) -> usize {
        self.0
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum()
    }
}

/// A bucket of a stream.
pub(super) struct Bucket {
    /// The id as it came, which is sent back.
    pub(super) id: BucketId,
    pub(super) state: BucketState,
}

pub(super) enum BucketState {
    /// A bucket with a rule. The holder is `None` while its calls are under way.
    Matched(Option<Box<QuotaHolder>>),
    /// A bucket without a rule, and the end of its assignment.
    Unmatched {
        assigned_until: Timestamp,
        active_at: Timestamp,
    },
}

impl Bucket {
    /// Counts what its grants have left as forfeited.
    pub(super) fn count_forfeited(&self) {
        if let BucketState::Matched(Some(holder)) = &self.state {
            count_units(holder.target().policy_name(), "forfeited", holder.left());
        }
    }

    fn active_at(&self) -> Timestamp {
        match &self.state {
            BucketState::Matched(Some(holder)) => holder.bucket().active_at(),
            BucketState::Matched(None) => Timestamp::from_micros(u64::MAX),
            BucketState::Unmatched { active_at, .. } => *active_at,
        }
    }
}

/// The buckets of a stream, and when each has something to do.
#[derive(Default)]
pub(super) struct Buckets {
    by_key: HashMap<BucketKey, Bucket>,
    id_bytes: usize,
    /// Wake-ups, of which those that a bucket has changed since are skipped.
    wakes: BinaryHeap<Reverse<(Timestamp, BucketKey)>>,
}

impl Buckets {
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= MAX_BUCKETS || self.id_bytes >= MAX_ID_BYTES
    }

    pub(super) fn get_mut(&mut self, key: &BucketKey) -> Option<&mut Bucket> {
        self.by_key.get_mut(key)
    }

    pub(super) fn insert(&mut self, key: BucketKey, bucket: Bucket) {
        self.id_bytes += key.bytes();
        self.by_key.insert(key, bucket);
    }

    pub(super) fn remove(&mut self, key: &BucketKey) -> Option<Bucket> {
        let bucket = self.by_key.remove(key)?;
        self.id_bytes -= key.bytes();
        Some(bucket)
    }

    pub(super) fn keys(&self) -> Vec<BucketKey> {
        self.by_key.keys().cloned().collect()
    }

    pub(super) fn holders(&mut self) -> impl Iterator<Item = &mut QuotaHolder> {
        self.by_key
            .values_mut()
            .filter_map(|bucket| match &mut bucket.state {
                BucketState::Matched(holder) => holder.as_deref_mut(),
                BucketState::Unmatched { .. } => None,
            })
    }

    /// Puts a holder back, and schedules its next wake-up.
    pub(super) fn put_back(&mut self, key: BucketKey, holder: Box<QuotaHolder>) {
        let wake_at = holder.bucket().wake_at();
        if let Some(bucket) = self.by_key.get_mut(&key) {
            bucket.state = BucketState::Matched(Some(holder));
            if let Some(at) = wake_at {
                self.wakes.push(Reverse((at, key)));
            }
        }
    }

    /// The time of the next wake-up.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        self.wakes.peek().map(|Reverse((at, _))| *at)
    }

    /// A bucket whose time has come.
    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<BucketKey> {
        loop {
            let Reverse((at, _)) = self.wakes.peek()?;
            if *at > now {
                return None;
            }
            let Reverse((at, key)) = self.wakes.pop()?;
            let bucket = self.by_key.get(&key).map(|bucket| &bucket.state);
            if let Some(BucketState::Matched(Some(holder))) = bucket
                && holder.bucket().wake_at() == Some(at)
            {
                return Some(key);
            }
        }
    }

    /// The buckets that were idle since before `time`, the longest idle last.
    pub(super) fn idle_since(&self, time: Timestamp) -> Vec<BucketKey> {
        let idle = self
            .by_key
            .iter()
            .map(|(key, bucket)| (bucket.active_at(), key));
        let mut idle: Vec<(Timestamp, &BucketKey)> =
            idle.filter(|(active_at, _)| *active_at < time).collect();
        idle.sort_unstable_by(|one, other| other.cmp(one));
        idle.into_iter().map(|(_, key)| key.clone()).collect()
    }
}

/// The assignment of buckets without a grant.
pub(super) fn blanket(rules: &Rules, ttl: Duration) -> Assignment {
    match rules.unmatched_buckets() {
        UnmatchedBuckets::Allow => Assignment::AllowAll { ttl },
        UnmatchedBuckets::Deny => Assignment::DenyAll { ttl },
    }
}

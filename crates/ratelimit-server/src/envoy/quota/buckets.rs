//! The buckets of one stream.

use std::{
    collections::{BTreeSet, HashMap},
    mem::size_of,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use ratelimit_core::Timestamp;
use ratelimit_envoy::{
    Rules, UnmatchedBuckets,
    proto::envoy::service::rate_limit_quota::v3::{BucketId, bucket_id::BucketEntry},
    quota::{Assignment, QuotaHolder},
};

use super::metrics::count_lost;

/// The most buckets of a stream.
pub(super) const MAX_BUCKETS: usize = 100_000;

/// The life of the assignment of a bucket without a rule.
pub(super) const UNMATCHED_TTL: Duration = Duration::from_secs(300);

/// The most bytes of bucket ids of a stream, with what each entry takes beside its text.
const MAX_ID_BYTES: usize = 64 << 20;

/// The most buckets of all streams, and the most bytes of their ids.
const MAX_ALL_BUCKETS: usize = 400_000;
const MAX_ALL_ID_BYTES: usize = 128 << 20;

/// A bucket without requests for this long gives way to a new one when there are too many.
const IDLE_BEFORE_EVICTION: Duration = Duration::from_secs(10);

/// The time between two searches for idle buckets.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

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
        // The key and the id each have a handle of the text.
        let entry = size_of::<(Bytes, Bytes)>() + size_of::<BucketEntry>();
        self.0
            .iter()
            .map(|(key, value)| entry + key.len() + value.len())
            .sum()
    }
}

/// A bucket of a stream.
pub(super) struct Bucket {
    /// The id as it came, which is sent back.
    pub(super) id: BucketId,
    pub(super) state: BucketState,
    /// Its entry in the wake-ups.
    wake_at: Option<Timestamp>,
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
    /// A bucket with a copy of its id: the id of a report is a part of its buffer, and would keep all of it.
    pub(super) fn new(id: &BucketId, state: BucketState) -> Bucket {
        let copied = id.bucket.iter().map(|entry| BucketEntry {
            key: Bytes::copy_from_slice(&entry.key),
            value: Bytes::copy_from_slice(&entry.value),
        });
        Bucket {
            id: BucketId {
                bucket: copied.collect(),
            },
            state,
            wake_at: None,
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

/// The buckets of all streams.
#[derive(Debug, Default)]
pub(super) struct BucketTotals {
    buckets: AtomicUsize,
    id_bytes: AtomicUsize,
}

impl BucketTotals {
    fn is_full(&self) -> bool {
        self.buckets.load(Ordering::Relaxed) >= MAX_ALL_BUCKETS
            || self.id_bytes.load(Ordering::Relaxed) >= MAX_ALL_ID_BYTES
    }
}

/// The buckets of a stream, and when each has something to do.
#[derive(Default)]
pub(super) struct Buckets {
    totals: Arc<BucketTotals>,
    by_key: HashMap<BucketKey, Bucket>,
    id_bytes: usize,
    /// The next wake-up of each bucket that has one and whose holder is here.
    wakes: BTreeSet<(Timestamp, BucketKey)>,
    /// Idle buckets, the longest idle last, of the last search.
    idle: Vec<BucketKey>,
    searched_at: Option<Timestamp>,
}

impl Drop for Buckets {
    fn drop(&mut self) {
        self.totals.buckets.fetch_sub(self.len(), Ordering::Relaxed);
        self.totals
            .id_bytes
            .fetch_sub(self.id_bytes, Ordering::Relaxed);
    }
}

impl Buckets {
    pub(super) fn new(totals: Arc<BucketTotals>) -> Buckets {
        let mut buckets = Buckets::default();
        buckets.totals = totals;
        buckets
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= MAX_BUCKETS || self.id_bytes >= MAX_ID_BYTES || self.totals.is_full()
    }

    pub(super) fn contains(&self, key: &BucketKey) -> bool {
        self.by_key.contains_key(key)
    }

    pub(super) fn get_mut(&mut self, key: &BucketKey) -> Option<&mut Bucket> {
        self.by_key.get_mut(key)
    }

    /// Adds a bucket.
    pub(super) fn insert(&mut self, bucket: Bucket) {
        let key = BucketKey::new(&bucket.id);
        let bytes = key.bytes();
        if self.by_key.insert(key, bucket).is_none() {
            self.id_bytes += bytes;
            self.totals.buckets.fetch_add(1, Ordering::Relaxed);
            self.totals.id_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn remove(&mut self, key: &BucketKey) -> Option<Bucket> {
        let bucket = self.by_key.remove(key)?;
        self.id_bytes -= key.bytes();
        self.totals.buckets.fetch_sub(1, Ordering::Relaxed);
        self.totals
            .id_bytes
            .fetch_sub(key.bytes(), Ordering::Relaxed);
        if let Some(at) = bucket.wake_at {
            self.wakes.remove(&(at, key.clone()));
        }
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

    /// Takes the holder of a bucket with a rule, and its wake-up. `None` if it was taken before.
    pub(super) fn take_holder(&mut self, key: &BucketKey) -> Option<Box<QuotaHolder>> {
        let bucket = self.by_key.get_mut(key)?;
        let BucketState::Matched(holder) = &mut bucket.state else {
            return None;
        };
        let holder = holder.take()?;
        if let Some(at) = bucket.wake_at.take() {
            self.wakes.remove(&(at, key.clone()));
        }
        Some(holder)
    }

    /// Puts a holder back, and schedules its next wake-up. A holder whose bucket is not kept is lost.
    pub(super) fn put_back(&mut self, key: BucketKey, holder: Box<QuotaHolder>) {
        let Some(bucket) = self.by_key.get_mut(&key) else {
            count_lost(&holder);
            return;
        };
        bucket.wake_at = holder.bucket().wake_at();
        bucket.state = BucketState::Matched(Some(holder));
        if let Some(at) = bucket.wake_at {
            self.wakes.insert((at, key));
        }
    }

    /// The time of the next wake-up.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// Takes the holder of a bucket whose time has come.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<(BucketKey, Box<QuotaHolder>)> {
        let (at, key) = self.wakes.first()?;
        if *at > now {
            return None;
        }
        let key = key.clone();
        let holder = self.take_holder(&key)?;
        Some((key, holder))
    }

    /// The bucket that is idle for the longest time. Buckets are searched once in a second.
    pub(super) fn pop_idle(&mut self, now: Timestamp) -> Option<BucketKey> {
        let is_idle = |bucket: &Bucket| now.since(bucket.active_at()) > IDLE_BEFORE_EVICTION;
        if self.idle.is_empty()
            && self
                .searched_at
                .is_none_or(|at| now.since(at) >= SEARCH_INTERVAL)
        {
            self.searched_at = Some(now);
            let idle = self.by_key.iter().filter(|(_, bucket)| is_idle(bucket));
            let mut idle: Vec<(Timestamp, &BucketKey)> = idle
                .map(|(key, bucket)| (bucket.active_at(), key))
                .collect();
            idle.sort_unstable_by(|one, other| other.cmp(one));
            self.idle = idle.into_iter().map(|(_, key)| key.clone()).collect();
        }
        // Some of them may have been asked for since.
        while let Some(key) = self.idle.pop() {
            if self.by_key.get(&key).is_some_and(is_idle) {
                return Some(key);
            }
        }
        None
    }
}

/// The assignment of buckets without a grant.
pub(super) fn blanket(rules: &Rules, ttl: Duration) -> Assignment {
    match rules.unmatched_buckets() {
        UnmatchedBuckets::Allow => Assignment::AllowAll { ttl },
        _ => Assignment::DenyAll { ttl },
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_envoy::{RulesBuilder, quota::Holders, read_rules};
    use ratelimit_http::policy_file::{Diagnostics, Format, parse};

    use super::*;

    fn bucket_id(user: &'static str) -> BucketId {
        let (key, value) = ("user".into(), user.into());
        BucketId {
            bucket: vec![BucketEntry { key, value }],
        }
    }

    /// Adds a bucket that was active at `now`, and returns its key.
    fn insert(buckets: &mut Buckets, user: &'static str, now: Timestamp) -> BucketKey {
        let text = "bucket: [{ domain: edge, match: [user], limits: fixed_window 60/d }]";
        let mut diagnostics = Diagnostics::new();
        let node = parse(text, Format::Yaml, &mut diagnostics).unwrap();
        let config = read_rules(&node, &mut diagnostics);
        let mut builder = RulesBuilder::new();
        builder.add_buckets(&config.buckets, config.unmatched, |_| None);
        let id = bucket_id(user);
        let target = builder.build().quota_target("edge", &id).unwrap();
        let holder = Box::new(QuotaHolder::new(target, Arc::<Holders>::default(), now));
        buckets.insert(Bucket::new(&id, BucketState::Matched(Some(holder))));
        BucketKey::new(&id)
    }

    #[test]
    fn a_bucket_has_one_wake_up() {
        let mut buckets = Buckets::default();
        let at = Timestamp::from_secs;
        let key = insert(&mut buckets, "alice", at(100));
        for second in 100..200 {
            let mut holder = buckets.take_holder(&key).unwrap();
            assert_eq!(buckets.next_wake(), None, "its calls are under way");
            assert!(buckets.take_holder(&key).is_none());
            holder.bucket_mut().postpone(at(second));
            buckets.put_back(key.clone(), holder);
            assert_eq!(buckets.wakes.len(), 1);
        }
        assert!(buckets.take_due(at(199)).is_none());
        let (due, holder) = buckets.take_due(at(200)).unwrap();
        assert!(due == key && buckets.take_due(at(200)).is_none());
        buckets.put_back(key.clone(), holder);
        buckets.remove(&key);
        assert_eq!((buckets.wakes.len(), buckets.id_bytes), (0, 0));
    }

    #[test]
    fn idle_buckets_are_searched_once_in_a_second() {
        let mut buckets = Buckets::default();
        let at = Timestamp::from_secs;
        let old = insert(&mut buckets, "old", at(100));
        assert_eq!(buckets.pop_idle(at(110)), None);
        let millis = |ms: u64| Timestamp::from_micros(ms * 1_000);
        assert_eq!(
            buckets.pop_idle(millis(110_500)),
            None,
            "not searched again"
        );
        let older = insert(&mut buckets, "older", at(99));
        assert_eq!(buckets.pop_idle(at(111)), Some(older.clone()));
        buckets.remove(&older);
        assert_eq!(buckets.pop_idle(at(111)), Some(old));
        assert_eq!(buckets.pop_idle(at(111)), None);
    }

    #[test]
    fn an_id_is_copied_and_its_entries_count() {
        let buffer = Bytes::from(vec![b'x'; 1_000]);
        let entry = BucketEntry {
            key: buffer.slice(..1),
            value: Bytes::new(),
        };
        let id = BucketId {
            bucket: vec![entry; 10],
        };
        let state = BucketState::Matched(None);
        let bucket = Bucket::new(&id, state);
        drop(id);
        assert!(bucket.id.bucket.iter().all(|entry| &entry.key[..] == b"x"));
        assert!(buffer.is_unique(), "nothing keeps the report");
        assert!(BucketKey::new(&bucket.id).bytes() > 10 * 100);
    }
}

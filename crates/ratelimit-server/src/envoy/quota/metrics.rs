//! The metrics of the quota service.

use metrics::{Gauge, counter, gauge, histogram};
use ratelimit_envoy::quota::{QuotaHolder, QuotaTally};
use std::time::Duration;

use crate::metrics::{
    QUOTA_ABANDONED, QUOTA_ANSWER_SECONDS, QUOTA_BUCKETS, QUOTA_CLOSED, QUOTA_STREAMS,
    QUOTA_UNGRANTED, QUOTA_UNITS,
};

/// A gauge that counts this value as long as it lives.
pub(super) struct OpenStream {
    streams: Gauge,
    buckets: Gauge,
    count: usize,
}

impl OpenStream {
    pub(super) fn new() -> OpenStream {
        let streams = gauge!(QUOTA_STREAMS);
        streams.increment(1.0);
        OpenStream {
            streams,
            buckets: gauge!(QUOTA_BUCKETS),
            count: 0,
        }
    }

    /// Sets the number of buckets of this stream.
    pub(super) fn set_buckets(&mut self, count: usize) {
        match count.checked_sub(self.count) {
            Some(more) => self.buckets.increment(as_f64(more)),
            None => self.buckets.decrement(as_f64(self.count - count)),
        }
        self.count = count;
    }
}

/// Exact: a stream has at most 100,000 buckets.
fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.streams.decrement(1.0);
        self.set_buckets(0);
    }
}

/// Counts what became of units of a policy.
pub(super) fn count_tally(policy: &str, tally: &QuotaTally) {
    count_units(policy, "granted", tally.granted);
    count_units(policy, "given_back", tally.given_back);
    count_units(policy, "forfeited", tally.forfeited);
    count_units(policy, "unassigned", tally.unassigned);
}

pub(super) fn count_units(policy: &str, state: &'static str, units: u64) {
    if units > 0 {
        counter!(QUOTA_UNITS, "policy" => policy.to_owned(), "state" => state).increment(units);
    }
}

/// Counts what a holder that is dropped has left, and the requests that were not recorded.
pub(super) fn count_lost(holder: &QuotaHolder) {
    let policy = holder.target().policy_name();
    count_units(policy, "forfeited", holder.left());
    count_units(policy, "unrecorded", holder.unrecorded());
}

pub(super) fn count_ungranted(reason: &'static str) {
    counter!(QUOTA_UNGRANTED, "reason" => reason).increment(1);
}

pub(super) fn count_abandoned() {
    counter!(QUOTA_ABANDONED).increment(1);
}

pub(super) fn count_closed(reason: &'static str) {
    counter!(QUOTA_CLOSED, "reason" => reason).increment(1);
}

pub(super) fn record_answer(elapsed: Duration) {
    histogram!(QUOTA_ANSWER_SECONDS).record(elapsed.as_secs_f64());
}

/// Makes the series exist from the start.
pub(super) fn register() {
    gauge!(QUOTA_STREAMS).set(0.0);
    gauge!(QUOTA_BUCKETS).set(0.0);
    counter!(QUOTA_ABANDONED).absolute(0);
    for reason in ["unmatched", "overflow", "not_utf8"] {
        counter!(QUOTA_UNGRANTED, "reason" => reason).absolute(0);
    }
    for reason in ["slow", "invalid", "overloaded", "draining"] {
        counter!(QUOTA_CLOSED, "reason" => reason).absolute(0);
    }
}

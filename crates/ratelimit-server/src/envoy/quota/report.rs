//! Reports of Envoy as they arrive.

use std::{collections::HashMap, error::Error as _, time::Instant};

use futures_util::StreamExt as _;
use ratelimit_envoy::proto::envoy::service::rate_limit_quota::v3::{
    BucketId, RateLimitQuotaUsageReports,
};
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};

use super::buckets::BucketKey;

/// A report and the time of its arrival, or why there is none.
pub(super) type TimedReport = (Instant, Result<RateLimitQuotaUsageReports, Status>);

/// The requests of one bucket in a report.
pub(super) struct Usage {
    pub(super) id: BucketId,
    pub(super) allowed: u64,
    pub(super) denied: u64,
}

/// Reads reports as they arrive, also while others are processed: the time of arrival tells how old their counts are.
pub(super) async fn read_reports(
    mut incoming: Streaming<RateLimitQuotaUsageReports>,
    sender: mpsc::Sender<TimedReport>,
) {
    while let Some(report) = incoming.next().await {
        // An error of the connection has a source, and one of a message has none.
        let is_lost = |status: &Status| {
            status.source().is_some() || matches!(status.code(), Code::Cancelled | Code::Unknown)
        };
        if report.as_ref().is_err_and(is_lost)
            || sender.send((Instant::now(), report)).await.is_err()
        {
            return;
        }
    }
}

/// The requests of each bucket. A bucket that is there twice has the sum. Entries without a bucket are left out.
pub(super) fn usages(report: RateLimitQuotaUsageReports) -> HashMap<BucketKey, Usage> {
    let mut usages: HashMap<BucketKey, Usage> = HashMap::new();
    for usage in report.bucket_quota_usages {
        let Some(id) = usage.bucket_id else {
            continue;
        };
        let sum = usages.entry(BucketKey::new(&id)).or_insert(Usage {
            id,
            allowed: 0,
            denied: 0,
        });
        sum.allowed = sum.allowed.saturating_add(usage.num_requests_allowed);
        sum.denied = sum.denied.saturating_add(usage.num_requests_denied);
    }
    usages
}

//! Reports of Envoy as they arrive.

use std::{collections::HashMap, error::Error as _, mem::size_of, time::Instant};

use futures_util::{Stream, StreamExt as _};
use ratelimit_envoy::proto::envoy::service::rate_limit_quota::v3::{
    BucketId, RateLimitQuotaUsageReports, bucket_id::BucketEntry,
    rate_limit_quota_usage_reports::BucketQuotaUsage,
};
use tokio::{sync::mpsc, task::yield_now};
use tonic::{Code, Status};

use super::buckets::BucketKey;
use crate::memory_budget::{HeldMemory, MemoryBudget};

/// The most usages of a report.
const MAX_USAGES: usize = 200_000;

/// The most entries of a bucket id.
const MAX_ENTRIES: usize = 64;

/// Turns of a long loop after which other tasks may run.
pub(super) const YIELD_EVERY: usize = 512;

/// A report and the time of its arrival.
pub(super) struct TimedReport {
    arrived: Instant,
    report: RateLimitQuotaUsageReports,
    _memory: HeldMemory,
}

/// A report, or why there are no more.
pub(super) type ReceivedReport = Result<TimedReport, Refusal>;

/// The reason why a stream ends, for its metric and for Envoy.
pub(super) struct Refusal {
    pub(super) reason: &'static str,
    pub(super) status: Status,
}

impl Refusal {
    pub(super) fn invalid(message: &'static str) -> Refusal {
        Refusal {
            reason: "invalid",
            status: Status::invalid_argument(message),
        }
    }
}

/// The sender's end of the reports of a stream.
pub(super) struct ReportSender {
    reports: mpsc::UnboundedSender<ReceivedReport>,
    budget: MemoryBudget,
}

/// Reports that have arrived and wait for the pass before.
pub(super) struct ReportReceiver {
    reports: mpsc::UnboundedReceiver<ReceivedReport>,
}

/// A queue of reports. Those of all streams are bounded by their memory.
pub(super) fn report_queue(budget: &MemoryBudget) -> (ReportSender, ReportReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (
        ReportSender {
            reports: sender,
            budget: budget.clone(),
        },
        ReportReceiver { reports: receiver },
    )
}

impl ReportSender {
    /// Reads reports as they arrive, also while others are processed: the time of arrival tells how old their counts are.
    ///
    /// It never waits for the receiver. A report that does not fit the budget ends the stream.
    pub(super) async fn read(
        self,
        mut incoming: impl Stream<Item = Result<RateLimitQuotaUsageReports, Status>> + Unpin,
    ) {
        while let Some(report) = incoming.next().await {
            let received = match report {
                Ok(report) => self.admit(Instant::now(), report),
                Err(status) if status.code() == Code::ResourceExhausted => Err(Refusal {
                    reason: "overloaded",
                    status,
                }),
                Err(status)
                    if matches!(status.code(), Code::InvalidArgument | Code::OutOfRange) =>
                {
                    Err(Refusal {
                        reason: "invalid",
                        status,
                    })
                }
                // An error of the connection has a source, and one of a message has none.
                Err(status)
                    if status.source().is_some()
                        || matches!(status.code(), Code::Cancelled | Code::Unknown) =>
                {
                    return;
                }
                Err(status) => Err(Refusal {
                    reason: "invalid",
                    status,
                }),
            };
            let is_last = received.is_err();
            if self.reports.send(received).is_err() || is_last {
                return;
            }
        }
    }

    fn admit(
        &self,
        arrived: Instant,
        report: RateLimitQuotaUsageReports,
    ) -> Result<TimedReport, Refusal> {
        if report.bucket_quota_usages.len() > MAX_USAGES {
            return Err(Refusal::invalid("a report has more than 200,000 usages"));
        }
        let ids = report.bucket_quota_usages.iter();
        let mut ids = ids.filter_map(|usage| usage.bucket_id.as_ref());
        if ids.any(|id| id.bucket.len() > MAX_ENTRIES) {
            return Err(Refusal::invalid("a bucket id has more than 64 entries"));
        }
        let mut held = self.budget.hold();
        held.grow(memory(&report)).map_err(|_| Refusal {
            reason: "overloaded",
            status: Status::resource_exhausted("too many reports wait"),
        })?;
        Ok(TimedReport {
            arrived,
            report,
            _memory: held,
        })
    }
}

fn memory(report: &RateLimitQuotaUsageReports) -> usize {
    let usages = report.bucket_quota_usages.iter();
    let entries = usages.filter_map(|usage| Some(&usage.bucket_id.as_ref()?.bucket));
    let entries = entries
        .flatten()
        .map(|entry| size_of::<BucketEntry>() + entry.key.len() + entry.value.len());
    size_of::<BucketQuotaUsage>() * report.bucket_quota_usages.len() + entries.sum::<usize>()
}

/// The requests of one bucket in the reports of a batch.
pub(super) struct Usage {
    pub(super) id: BucketId,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// The arrival of the oldest report of the bucket.
    pub(super) arrived: Instant,
}

/// All reports that had arrived when a pass began: the sum of each bucket.
pub(super) struct ReportBatch {
    pub(super) usages: HashMap<BucketKey, Usage>,
    /// The arrival of the oldest report.
    pub(super) arrived: Instant,
    /// The reason why the stream ends after these reports.
    pub(super) refusal: Option<Refusal>,
}

impl ReportReceiver {
    /// Waits for a report. `None` if the stream has ended.
    ///
    /// Cancel safe: a report is taken by the call that returns it.
    pub(super) async fn recv(&mut self) -> Option<ReceivedReport> {
        self.reports.recv().await
    }

    /// Takes all reports that have arrived since `first`.
    ///
    /// The first report of a stream names the domain, and the others have the same or none.
    pub(super) async fn batch(
        &mut self,
        first: ReceivedReport,
        domain: &mut String,
    ) -> ReportBatch {
        let mut next = first;
        let mut batch = ReportBatch {
            usages: HashMap::new(),
            arrived: Instant::now(),
            refusal: None,
        };
        // Those that arrive in the meantime belong to the next batch.
        for _ in 0..=self.reports.len() {
            let received = next.and_then(|report| {
                check_domain(domain, &report.report)?;
                Ok(report)
            });
            match received {
                Ok(report) => batch.add(report).await,
                Err(refusal) => {
                    batch.refusal = Some(refusal);
                    break;
                }
            }
            match self.reports.try_recv() {
                Ok(received) => next = received,
                Err(_) => break,
            }
        }
        batch
    }
}

fn check_domain(domain: &mut String, report: &RateLimitQuotaUsageReports) -> Result<(), Refusal> {
    if domain.is_empty() {
        domain.clone_from(&report.domain);
    }
    if domain.is_empty() || !(report.domain.is_empty() || report.domain == *domain) {
        return Err(Refusal::invalid("the reports of a stream have one domain"));
    }
    Ok(())
}

impl ReportBatch {
    /// Adds a report. Entries without a bucket are left out.
    async fn add(&mut self, report: TimedReport) {
        let TimedReport {
            arrived, report, ..
        } = report;
        self.arrived = self.arrived.min(arrived);
        for (index, usage) in report.bucket_quota_usages.into_iter().enumerate() {
            if index % YIELD_EVERY == YIELD_EVERY - 1 {
                yield_now().await;
            }
            let Some(id) = usage.bucket_id else {
                continue;
            };
            let sum = self.usages.entry(BucketKey::new(&id)).or_insert(Usage {
                id,
                allowed: 0,
                denied: 0,
                arrived,
            });
            sum.allowed = sum.allowed.saturating_add(usage.num_requests_allowed);
            sum.denied = sum.denied.saturating_add(usage.num_requests_denied);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    fn report(users: &[(&'static str, u64)]) -> RateLimitQuotaUsageReports {
        let usages = users.iter().map(|(user, allowed)| BucketQuotaUsage {
            bucket_id: Some(BucketId {
                bucket: vec![BucketEntry {
                    key: "user".into(),
                    value: (*user).into(),
                }],
            }),
            num_requests_allowed: *allowed,
            num_requests_denied: 1,
            time_elapsed: None,
        });
        RateLimitQuotaUsageReports {
            domain: "edge".to_owned(),
            bucket_quota_usages: usages.collect(),
        }
    }

    #[tokio::test]
    async fn reports_that_wait_become_one_batch_with_the_oldest_arrival() {
        let budget = MemoryBudget::quota();
        let (sender, mut receiver) = report_queue(&budget);
        let before = Instant::now();
        let first = sender.admit(before, report(&[("alice", 1), ("bob", 2)]));
        let arrived = before + std::time::Duration::from_secs(5);
        let second = sender.admit(arrived, report(&[("alice", 10), ("carol", 4)]));
        for received in [first, second] {
            assert!(sender.reports.send(received).is_ok());
        }

        let next = receiver.recv().await.unwrap();
        let batch = receiver.batch(next, &mut String::new()).await;

        let usages = batch.usages.into_values().map(|usage| {
            let requests = (usage.allowed, usage.denied);
            (usage.id.bucket[0].value.clone(), requests, usage.arrived)
        });
        let mut usages: Vec<_> = usages.collect();
        usages.sort();
        let expected = [
            ("alice".into(), (11, 2), before),
            ("bob".into(), (2, 1), before),
            ("carol".into(), (4, 1), arrived),
        ];
        assert_eq!(usages, expected);
        assert_eq!(batch.arrived, before);
        assert_eq!(budget.held_bytes(), 0);
    }

    #[tokio::test]
    async fn reports_beyond_the_bound_are_refused() {
        let budget = MemoryBudget::quota();
        let (sender, mut receiver) = report_queue(&budget);
        let full = report(&vec![("alice", 1); 100_000]);
        budget.hold().grow(4 * memory(&full)).unwrap();

        // The reader waits for nothing: it ends by itself.
        let endless = stream::repeat_with(|| Ok(full.clone()));
        sender.read(endless).await;

        let first = receiver.recv().await.unwrap();
        let batch = receiver.batch(first, &mut String::new()).await;
        assert_eq!(batch.refusal.unwrap().reason, "overloaded");
        assert_eq!(batch.usages.len(), 1);
    }

    #[tokio::test]
    async fn reports_that_take_too_much_memory_are_refused() {
        let many = report(&vec![("alice", 1); MAX_USAGES + 1]);
        let mut wide = report(&[("alice", 1)]);
        if let Some(id) = &mut wide.bucket_quota_usages[0].bucket_id {
            id.bucket = vec![BucketEntry::default(); MAX_ENTRIES + 1];
        }
        for bad in [many, wide] {
            let (sender, mut receiver) = report_queue(&MemoryBudget::quota());
            sender.read(stream::iter([Ok(bad)])).await;
            let refused = receiver.recv().await.unwrap();
            assert_eq!(refused.err().unwrap().reason, "invalid");
        }
    }
}

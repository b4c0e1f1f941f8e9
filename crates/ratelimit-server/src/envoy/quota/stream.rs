//! One stream of the quota service.

use std::{
    future::pending,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use ratelimit_envoy::{
    Rules,
    proto::envoy::service::rate_limit_quota::v3::{
        RateLimitQuotaResponse, RateLimitQuotaUsageReports, rate_limit_quota_response::BucketAction,
    },
    quota::{QuotaAction, QuotaHolder, abandon},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tonic::{Status, Streaming};

use super::{
    buckets::{BucketKey, BucketState, Buckets},
    context::QuotaContext,
    metrics::{OpenStream, count_abandoned, count_closed, count_lost, record_answer},
    report::{ReceivedReport, Refusal, ReportReceiver, report_queue},
};

/// A stream whose responses are not read for this long is closed.
pub(super) const MAX_UNREAD: Duration = Duration::from_secs(10);

/// One stream: an Envoy and a domain.
///
/// It reads reports, charges, grants, and sends. When it ends, all that was granted on it stays charged: the counts of
/// Envoy may be lost with the stream, so nothing is given back.
pub(super) struct QuotaStream {
    pub(super) context: QuotaContext,
    pub(super) rules: watch::Receiver<Arc<Rules>>,
    reports: ReportReceiver,
    reader: JoinHandle<()>,
    pub(super) responses: mpsc::Sender<TimedResponse>,
    /// The domain of the first report.
    pub(super) domain: String,
    pub(super) buckets: Buckets,
    open: OpenStream,
}

/// A response, and when the oldest of its assignments was made.
pub(super) type TimedResponse = (Instant, Result<RateLimitQuotaResponse, Status>);

/// A bucket whose calls are to be made.
pub(super) type Work = (BucketKey, Box<QuotaHolder>, Vec<QuotaAction>);

/// The stream cannot go on.
pub(super) struct StreamEnded;

impl QuotaStream {
    pub(super) fn new(
        context: QuotaContext,
        incoming: Streaming<RateLimitQuotaUsageReports>,
        responses: mpsc::Sender<TimedResponse>,
    ) -> QuotaStream {
        let (sender, reports) = report_queue(&context.reports);
        QuotaStream {
            rules: context.rules.subscribe(),
            reports,
            reader: tokio::spawn(sender.read(incoming)),
            responses,
            domain: String::new(),
            buckets: Buckets::new(Arc::clone(&context.totals)),
            open: OpenStream::new(),
            context,
        }
    }

    /// Serves the stream until Envoy or the server ends it.
    pub(super) async fn run(mut self) {
        let app = self.context.app.clone();
        let mut draining = pin!(app.drained());
        loop {
            let wake_at = self.buckets.next_wake();
            let wake_at = wake_at.map(|at| self.context.instant(at));
            let result = tokio::select! {
                biased;
                () = self.responses.closed() => break,
                () = &mut draining => {
                    self.outlive_grants().await;
                    break;
                }
                changed = self.rules.changed() => match changed {
                    Ok(()) => self.reload().await,
                    Err(_) => break,
                },
                report = self.reports.recv() => match report {
                    Some(report) => self.report(report).await,
                    None => break,
                },
                () = sleep_until(wake_at) => self.wake().await,
            };
            if result.is_err() {
                break;
            }
        }
    }

    /// Grants nothing any more, and ends the stream with its last grant. Envoy then opens one to another server.
    async fn outlive_grants(&mut self) {
        count_closed("draining");
        let now = self.context.now();
        let ends = self.buckets.holders();
        let last = ends
            .filter_map(|holder| holder.bucket_mut().grant_end(now))
            .max();
        let last = last.map(|at| self.context.instant(at));
        tokio::select! {
            () = self.responses.closed() => {}
            () = sleep_until(last.or(Some(Instant::now()))) => {}
        }
    }

    /// Takes all reports that have arrived, and does what is due.
    async fn report(&mut self, first: ReceivedReport) -> Result<(), StreamEnded> {
        let batch = self.reports.batch(first, &mut self.domain).await;
        let (arrived, refusal) = (batch.arrived, batch.refusal);
        if !batch.usages.is_empty() {
            let (mut work, actions) = self.take_usages(batch.usages).await;
            self.take_due(&mut work);
            self.perform(work, actions).await?;
            self.open.set_buckets(self.buckets.len());
            record_answer(arrived.elapsed());
        }
        match refusal {
            Some(refusal) => self.refuse(refusal).await,
            None => Ok(()),
        }
    }

    /// Ends the stream with an error for Envoy.
    async fn refuse(&mut self, refusal: Refusal) -> Result<(), StreamEnded> {
        let Refusal { reason, status } = refusal;
        count_closed(reason);
        tracing::warn!(%status, "a report of an Envoy is refused, and its quota stream closed");
        // An error means that Envoy has left.
        let sending = self.responses.send((Instant::now(), Err(status)));
        let _ = tokio::time::timeout(MAX_UNREAD, sending).await;
        Err(StreamEnded)
    }

    /// Does what is due.
    async fn wake(&mut self) -> Result<(), StreamEnded> {
        let mut work = Vec::new();
        self.take_due(&mut work);
        self.perform(work, Vec::new()).await
    }

    /// Takes the buckets whose time has come, without those that have work already.
    fn take_due(&mut self, work: &mut Vec<Work>) {
        let now = self.context.now();
        while let Some((key, mut holder)) = self.buckets.take_due(now) {
            match holder.bucket_mut().wake(now) {
                Some(due) => work.push((key, holder, vec![due])),
                None => self.buckets.put_back(key, holder),
            }
        }
    }

    pub(super) fn abandon(&mut self, key: &BucketKey, actions: &mut Vec<BucketAction>) {
        if let Some(bucket) = self.buckets.remove(key) {
            count_abandoned();
            actions.push(abandon(&bucket.id));
            if let BucketState::Matched(Some(holder)) = &bucket.state {
                count_lost(holder);
            }
        }
    }
}

impl Drop for QuotaStream {
    fn drop(&mut self) {
        self.reader.abort();
        for holder in self.buckets.holders() {
            count_lost(holder);
        }
    }
}

/// Never, without a time.
pub(super) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => pending().await,
    }
}

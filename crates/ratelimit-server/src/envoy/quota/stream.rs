//! One stream of the quota service.

use std::{
    future::pending,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use ratelimit_core::Timestamp;
use ratelimit_envoy::{
    Rules,
    proto::envoy::service::rate_limit_quota::v3::{
        BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
        rate_limit_quota_response::BucketAction,
    },
    quota::{PassState, QuotaAction, QuotaHolder, abandon},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tonic::{Status, Streaming};

use super::{
    buckets::{Bucket, BucketKey, BucketState, Buckets, UNMATCHED_TTL, blanket},
    context::QuotaContext,
    metrics::{
        OpenStream, count_abandoned, count_closed, count_tally, count_ungranted, count_units,
        record_answer,
    },
    report::{TimedReport, Usage, read_reports, usages},
};

/// Calls of the store at a time.
const MAX_CALLS: usize = 128;

/// Reports that have arrived and are not processed yet. Each is stamped with its arrival.
const MAX_REPORTS: usize = 4;

/// A stream whose responses are not read for this long is closed.
const MAX_UNREAD: Duration = Duration::from_secs(10);

/// Answers of the store are sent after this time at the latest, while other calls are under way.
const FLUSH_AFTER: Duration = Duration::from_millis(200);

/// The assignment of a bucket without a rule is renewed this long before its end.
const UNMATCHED_RENEWAL: Duration = Duration::from_secs(60);

/// The life of the assignment of a bucket for which there is no room. It is sent with each report.
const OVERFLOW_TTL: Duration = Duration::from_secs(10);

/// A bucket without requests for this long gives way to a new one when there are too many.
const IDLE_BEFORE_EVICTION: Duration = Duration::from_secs(10);

/// A bucket without a rule is abandoned after this time without requests.
const MAX_IDLE: Duration = Duration::from_secs(60);

/// One stream: an Envoy and a domain.
///
/// It reads reports, charges, grants, and sends. When it ends, all that was granted on it stays charged: the counts of
/// Envoy may be lost with the stream, so nothing is given back.
pub(super) struct QuotaStream {
    pub(super) context: QuotaContext,
    pub(super) rules: watch::Receiver<Arc<Rules>>,
    reports: mpsc::Receiver<TimedReport>,
    reader: JoinHandle<()>,
    responses: mpsc::Sender<TimedResponse>,
    /// The domain of the first report.
    pub(super) domain: String,
    pub(super) buckets: Buckets,
    open: OpenStream,
}

/// A response, and when it was made.
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
        let (sender, reports) = mpsc::channel(MAX_REPORTS);
        QuotaStream {
            rules: context.rules.subscribe(),
            reports,
            reader: tokio::spawn(read_reports(incoming, sender)),
            responses,
            domain: String::new(),
            buckets: Buckets::default(),
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
                    Some((arrived, Ok(report))) => self.report(arrived, report).await,
                    Some((_, Err(status))) => self.refuse(status).await,
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

    async fn report(
        &mut self,
        arrived: Instant,
        report: RateLimitQuotaUsageReports,
    ) -> Result<(), StreamEnded> {
        if self.domain.is_empty() {
            self.domain.clone_from(&report.domain);
        }
        if self.domain.is_empty() || !(report.domain.is_empty() || report.domain == self.domain) {
            let status = Status::invalid_argument("the reports of a stream have one domain");
            return self.refuse(status).await;
        }
        let now = self.context.timestamp(arrived);
        let rules = Arc::clone(&self.rules.borrow());
        let mut actions = Vec::new();
        let mut work = Vec::new();
        let mut idle = None;
        for (key, usage) in usages(report) {
            if !key.is_text() {
                work.extend(self.record_unnamed(key, &usage, &rules, now));
                continue;
            }
            if self.buckets.get_mut(&key).is_none() {
                self.make_room(now, &mut idle, &mut actions);
                if self.buckets.is_full() {
                    count_ungranted("overflow");
                    blanket(&rules, OVERFLOW_TTL).write_to(&usage.id, &mut actions);
                    continue;
                }
                self.add(key.clone(), &usage.id, &rules, now);
            }
            work.extend(self.take_usage(key, &usage, &rules, now, &mut actions));
        }
        self.perform(work, actions).await?;
        self.open.set_buckets(self.buckets.len());
        record_answer(arrived.elapsed());
        Ok(())
    }

    /// Charges the requests of a bucket that cannot be named in a response.
    ///
    /// Envoy sends header values with any bytes. Its decoder takes only UTF-8, and a response with other bytes ends the
    /// stream with all of its buckets.
    fn record_unnamed(
        &self,
        key: BucketKey,
        usage: &Usage,
        rules: &Rules,
        now: Timestamp,
    ) -> Option<Work> {
        count_ungranted("not_utf8");
        let target = rules.quota_target(&self.domain, &usage.id)?;
        let holders = Arc::clone(&self.context.holders);
        let holder = Box::new(QuotaHolder::new(target, holders, now));
        Some((key, holder, vec![QuotaAction::Record(usage.allowed)]))
    }

    /// Ends the stream with an error for Envoy.
    async fn refuse(&mut self, status: Status) -> Result<(), StreamEnded> {
        count_closed("invalid");
        tracing::warn!(%status, "a report of an Envoy is refused, and its quota stream closed");
        // An error means that Envoy has left.
        let _ = self.responses.send((Instant::now(), Err(status))).await;
        Err(StreamEnded)
    }

    /// Abandons the longest idle bucket if there are too many.
    fn make_room(
        &mut self,
        now: Timestamp,
        idle: &mut Option<Vec<BucketKey>>,
        actions: &mut Vec<BucketAction>,
    ) {
        if !self.buckets.is_full() {
            return;
        }
        let micros = u64::try_from(IDLE_BEFORE_EVICTION.as_micros()).unwrap_or(u64::MAX);
        let before = Timestamp::from_micros(now.as_micros().saturating_sub(micros));
        // Sorted once for each report.
        let idle = idle.get_or_insert_with(|| self.buckets.idle_since(before));
        if let Some(key) = idle.pop() {
            self.abandon(&key, actions);
        }
    }

    fn abandon(&mut self, key: &BucketKey, actions: &mut Vec<BucketAction>) {
        if let Some(bucket) = self.buckets.remove(key) {
            count_abandoned();
            actions.push(abandon(&bucket.id));
            bucket.count_forfeited();
        }
    }

    fn add(&mut self, key: BucketKey, id: &BucketId, rules: &Rules, now: Timestamp) {
        let target = rules.quota_target(&self.domain, id);
        let state = if let Some(target) = target {
            let holders = Arc::clone(&self.context.holders);
            BucketState::Matched(Some(Box::new(QuotaHolder::new(target, holders, now))))
        } else {
            count_ungranted("unmatched");
            BucketState::Unmatched {
                assigned_until: now,
                active_at: now,
            }
        };
        let id = id.clone();
        self.buckets.insert(key, Bucket { id, state });
    }

    /// Applies the requests of a report to a bucket. Returns the work of one with a rule.
    fn take_usage(
        &mut self,
        key: BucketKey,
        usage: &Usage,
        rules: &Rules,
        now: Timestamp,
        actions: &mut Vec<BucketAction>,
    ) -> Option<Work> {
        let bucket = self.buckets.get_mut(&key)?;
        match &mut bucket.state {
            BucketState::Matched(holder) => {
                let mut holder = holder.take()?;
                let (allowed, denied) = (usage.allowed, usage.denied);
                let due = holder.bucket_mut().report(now, allowed, denied);
                let unassigned = due.iter().map(|action| match action {
                    QuotaAction::Record(requests) => *requests,
                    _ => 0,
                });
                let used = allowed - unassigned.sum::<u64>();
                count_units(holder.target().policy_name(), "used", used);
                Some((key, holder, due))
            }
            BucketState::Unmatched {
                assigned_until,
                active_at,
            } => {
                if usage.allowed > 0 || usage.denied > 0 {
                    *active_at = now;
                }
                if now.since(*active_at) >= MAX_IDLE {
                    self.abandon(&key, actions);
                } else if assigned_until.since(now) < UNMATCHED_RENEWAL {
                    *assigned_until = now + UNMATCHED_TTL;
                    blanket(rules, UNMATCHED_TTL).write_to(&bucket.id, actions);
                }
                None
            }
        }
    }

    /// Does what is due.
    async fn wake(&mut self) -> Result<(), StreamEnded> {
        let now = self.context.now();
        let mut work = Vec::new();
        while let Some(key) = self.buckets.pop_due(now) {
            if let Some(bucket) = self.buckets.get_mut(&key)
                && let BucketState::Matched(holder) = &mut bucket.state
                && let Some(mut holder) = holder.take()
            {
                let due = holder.bucket_mut().wake(now);
                work.push((key, holder, due));
            }
        }
        self.perform(work, Vec::new()).await
    }

    /// Makes the calls of many buckets at once, and sends their assignments in one response, unless it takes long.
    pub(super) async fn perform(
        &mut self,
        work: Vec<Work>,
        mut actions: Vec<BucketAction>,
    ) -> Result<(), StreamEnded> {
        let pass = PassState::default();
        let context = self.context.clone();
        let calls = work.into_iter().map(|(key, mut holder, due)| {
            let (pass, context) = (&pass, &context);
            async move {
                let limiter = context.app.limiter();
                let now = || context.now();
                let update = holder.perform(due, limiter, pass, now).await;
                (key, holder, update)
            }
        });
        let mut calls = pin!(stream::iter(calls).buffer_unordered(MAX_CALLS));
        let mut started = Instant::now();
        while let Some((key, holder, update)) = calls.next().await {
            count_tally(holder.target().policy_name(), &update.tally);
            if actions.is_empty() {
                started = Instant::now();
            }
            if let Some(bucket) = self.buckets.get_mut(&key) {
                for assignment in update.assignments {
                    assignment.write_to(&bucket.id, &mut actions);
                }
            }
            self.buckets.put_back(key.clone(), holder);
            if update.is_abandoned {
                self.abandon(&key, &mut actions);
            }
            if started.elapsed() > FLUSH_AFTER {
                self.send(std::mem::take(&mut actions)).await?;
            }
        }
        self.send(actions).await
    }

    async fn send(&mut self, bucket_action: Vec<BucketAction>) -> Result<(), StreamEnded> {
        if bucket_action.is_empty() {
            return Ok(());
        }
        let response = RateLimitQuotaResponse { bucket_action };
        let sending = self.responses.send((Instant::now(), Ok(response)));
        match tokio::time::timeout(MAX_UNREAD, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(StreamEnded),
            Err(_) => {
                count_closed("slow");
                tracing::warn!("an Envoy does not read its quota stream: the stream is closed");
                Err(StreamEnded)
            }
        }
    }
}

impl Drop for QuotaStream {
    fn drop(&mut self) {
        self.reader.abort();
        for holder in self.buckets.holders() {
            count_units(holder.target().policy_name(), "forfeited", holder.left());
        }
    }
}

/// Never, without a time.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => pending().await,
    }
}

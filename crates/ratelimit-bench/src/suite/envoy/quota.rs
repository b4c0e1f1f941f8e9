//! Streams of Envoy's quota service that report many buckets.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use futures_util::stream;
use ratelimit_envoy::proto::envoy::service::rate_limit_quota::v3::{
    BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports, bucket_id::BucketEntry,
    rate_limit_quota_service_client::RateLimitQuotaServiceClient,
    rate_limit_quota_usage_reports::BucketQuotaUsage,
};
use tokio::sync::mpsc;
use tonic::{Streaming, transport::Endpoint};

const STREAMS: u32 = 100;
const BUCKETS: usize = 1_000;
/// The time between two reports of a stream, which Envoy 1.40 has built in.
const INTERVAL: Duration = Duration::from_secs(5);
/// Reports of each stream, after the one that begins its buckets.
const REPORTS: u32 = 3;
/// How often a stream is opened again for one report.
const MAX_REOPENED: u32 = 5;
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The milliseconds from each report to its answer, sorted.
pub(super) async fn answer_times(addr: SocketAddr) -> Vec<f64> {
    let started = Instant::now();
    let streams = (0..STREAMS).map(|number| {
        tokio::spawn(async move {
            // Envoys begin at different times.
            tokio::time::sleep_until((started + INTERVAL * number / STREAMS).into()).await;
            QuotaStream::open(addr).await.run(addr, number).await
        })
    });
    let mut times = Vec::new();
    for stream in streams.collect::<Vec<_>>() {
        times.extend(stream.await.expect("no stream fails"));
    }
    times.sort_by(f64::total_cmp);
    times
}

struct QuotaStream {
    reports: mpsc::Sender<RateLimitQuotaUsageReports>,
    responses: Streaming<RateLimitQuotaResponse>,
}

impl QuotaStream {
    async fn open(addr: SocketAddr) -> QuotaStream {
        let endpoint = Endpoint::from_shared(format!("http://{addr}")).expect("an address");
        let channel = endpoint.connect().await.expect("the server answers");
        let (reports, queue) = mpsc::channel(1);
        let queue = stream::unfold(queue, |mut queue| async {
            let report = queue.recv().await?;
            Some((report, queue))
        });
        let mut client = RateLimitQuotaServiceClient::new(channel)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
            .max_decoding_message_size(MAX_MESSAGE_BYTES);
        let responses = client.stream_rate_limit_quotas(queue).await;
        QuotaStream {
            reports,
            responses: responses.expect("the server answers").into_inner(),
        }
    }

    /// Reports all buckets again and again, and returns the milliseconds to each answer but the first.
    ///
    /// The server closes a stream if a response of it waited for half a second, as on a machine that stood still. An Envoy
    /// opens another one then, and so does this, within the time of the answer.
    async fn run(mut self, addr: SocketAddr, number: u32) -> Vec<f64> {
        let mut times = Vec::new();
        for round in 0..=REPORTS {
            let sent = Instant::now();
            let mut reopened = 0;
            while !self.is_answered(report(number, round)).await {
                reopened += 1;
                assert!(reopened <= MAX_REOPENED, "the server closes the stream");
                self = QuotaStream::open(addr).await;
            }
            if round > 0 {
                times.push(sent.elapsed().as_secs_f64() * 1e3);
            }
            let rest = INTERVAL.saturating_sub(sent.elapsed());
            // Answers that the server sends of its own accord do not count as those to the next report.
            let _ = tokio::time::timeout(rest, async {
                while let Ok(Some(_)) = self.responses.message().await {}
            })
            .await;
        }
        times
    }

    /// Sends a report, and waits for its answer. Returns false if the stream is closed.
    async fn is_answered(&mut self, report: RateLimitQuotaUsageReports) -> bool {
        if self.reports.send(report).await.is_err() {
            return false;
        }
        let Ok(Some(response)) = self.responses.message().await else {
            return false;
        };
        assert!(!response.bucket_action.is_empty());
        true
    }
}

fn report(stream: u32, round: u32) -> RateLimitQuotaUsageReports {
    let usages = (0..BUCKETS).map(|bucket| BucketQuotaUsage {
        bucket_id: Some(BucketId {
            bucket: vec![BucketEntry {
                key: "user".into(),
                value: format!("{stream}-{bucket}").into(),
            }],
        }),
        time_elapsed: None,
        num_requests_allowed: u64::from(round.min(1)),
        num_requests_denied: 0,
    });
    RateLimitQuotaUsageReports {
        domain: "bench".to_owned(),
        bucket_quota_usages: usages.collect(),
    }
}

//! A client of the quota service.

use std::{fs, time::Duration};

use prost::bytes::Bytes;
use ratelimit_envoy::proto::envoy::{
    service::rate_limit_quota::v3::{
        BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports, bucket_id::BucketEntry,
        rate_limit_quota_response::bucket_action::BucketAction as Action,
        rate_limit_quota_service_client::RateLimitQuotaServiceClient,
        rate_limit_quota_usage_reports::BucketQuotaUsage,
    },
    r#type::v3::rate_limit_strategy::{BlanketRule, Strategy},
};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::EnvoyServer;

/// The end of a test that waits for a message in vain.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with this configuration file.
pub(super) fn start(config: &str, args: &[&str]) -> EnvoyServer {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.toml");
    fs::write(&path, config).unwrap();
    let path = path.to_str().unwrap().to_owned();
    let own = ["--config", &path, "--envoy-listen", "127.0.0.1:0"];
    let own = if args.contains(&"--envoy-listen") {
        &own[..2]
    } else {
        &own[..]
    };
    EnvoyServer::start_with(dir, &[own, args].concat())
}

pub(super) fn bucket(entries: &[(&str, &[u8])]) -> BucketId {
    let entries = entries.iter().map(|(key, value)| BucketEntry {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value),
    });
    BucketId {
        bucket: entries.collect(),
    }
}

/// A report of a bucket.
pub(super) fn usage(id: &BucketId, allowed: u64, denied: u64) -> BucketQuotaUsage {
    BucketQuotaUsage {
        bucket_id: Some(id.clone()),
        time_elapsed: None,
        num_requests_allowed: allowed,
        num_requests_denied: denied,
    }
}

pub(super) fn report(domain: &str, usages: Vec<BucketQuotaUsage>) -> RateLimitQuotaUsageReports {
    RateLimitQuotaUsageReports {
        domain: domain.to_owned(),
        bucket_quota_usages: usages,
    }
}

/// The content of a message about a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    DenyAll { ttl: i64 },
    AllowAll { ttl: i64 },
    Tokens { max: u32, nanos: i32, ttl: i64 },
    Abandon,
}

/// The content of a response, in order.
pub(super) fn told(response: &RateLimitQuotaResponse) -> Vec<(BucketId, Told)> {
    let actions = response.bucket_action.iter().map(|action| {
        let told = match action.bucket_action.as_ref().unwrap() {
            Action::AbandonAction(_) => Told::Abandon,
            Action::QuotaAssignmentAction(assignment) => {
                let ttl = assignment.assignment_time_to_live.as_ref().unwrap();
                assert!(ttl.seconds >= 1 && ttl.nanos == 0, "{ttl:?}");
                let ttl = ttl.seconds;
                let strategy = assignment.rate_limit_strategy.as_ref().unwrap();
                match strategy.strategy.as_ref().unwrap() {
                    Strategy::BlanketRule(rule) if *rule == BlanketRule::DenyAll as i32 => {
                        Told::DenyAll { ttl }
                    }
                    Strategy::BlanketRule(_) => Told::AllowAll { ttl },
                    Strategy::TokenBucket(tokens) => Told::Tokens {
                        max: tokens.max_tokens,
                        nanos: tokens.fill_interval.as_ref().unwrap().nanos,
                        ttl,
                    },
                    Strategy::RequestsPerTimeUnit(_) => panic!("Envoy ignores it"),
                }
            }
        };
        (action.bucket_id.clone().unwrap(), told)
    });
    actions.collect()
}

/// An open stream.
pub(super) struct QuotaClient {
    reports: mpsc::Sender<RateLimitQuotaUsageReports>,
    responses: Streaming<RateLimitQuotaResponse>,
}

impl QuotaClient {
    pub(super) async fn open(server: &EnvoyServer) -> Result<QuotaClient, Status> {
        let (reports, receiver) = mpsc::channel(16);
        let stream = futures_util::stream::unfold(receiver, |mut receiver| async {
            let report = receiver.recv().await?;
            Some((report, receiver))
        });
        let mut client = RateLimitQuotaServiceClient::new(server.channel().await)
            .max_encoding_message_size(128 << 20)
            .max_decoding_message_size(128 << 20);
        let responses = client.stream_rate_limit_quotas(stream).await?.into_inner();
        Ok(QuotaClient { reports, responses })
    }

    pub(super) async fn send(&self, report: RateLimitQuotaUsageReports) {
        self.reports.send(report).await.unwrap();
    }

    /// Sends a report, unless the server does not read any more.
    pub(super) async fn try_send(&self, report: RateLimitQuotaUsageReports) {
        let sending = self.reports.send(report);
        let _ = tokio::time::timeout(Duration::from_millis(100), sending).await;
    }

    /// The next response; `None` if the stream has ended.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<(BucketId, Told)>>, Status> {
        let response = tokio::time::timeout(PATIENCE, self.responses.message()).await;
        let response = response.expect("no response ever came")?;
        Ok(response.as_ref().map(told))
    }

    /// The response to a report of one bucket.
    pub(super) async fn ask(&mut self, id: &BucketId, allowed: u64) -> Vec<Told> {
        self.send(report("edge", vec![usage(id, allowed, 0)])).await;
        let told = self.next().await.unwrap().unwrap();
        let own = told.into_iter().filter(|(other, _)| other == id);
        own.map(|(_, told)| told).collect()
    }
}

/// The tokens of a grant, which begins with a blanket rule that throws old tokens away.
pub(super) fn granted(told: &[Told]) -> u32 {
    match told {
        [Told::DenyAll { ttl: one }, Told::Tokens { max, ttl, .. }] if one == ttl => {
            assert!((1..=8).contains(ttl));
            *max
        }
        other => panic!("not a grant: {other:?}"),
    }
}

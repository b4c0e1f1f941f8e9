//! The gRPC service `StreamRateLimitQuotas`.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures_util::{Stream, stream};
use ratelimit_envoy::proto::envoy::service::rate_limit_quota::v3::{
    RateLimitQuotaResponse, RateLimitQuotaUsageReports,
    rate_limit_quota_service_server::{RateLimitQuotaService, RateLimitQuotaServiceServer},
};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status, Streaming};

use super::{
    context::QuotaContext,
    metrics::{count_closed, register},
    stream::{QuotaStream, TimedResponse},
};
use crate::{app::App, envoy::CurrentRules};

/// The largest report, in bytes. 10,000 buckets are about half a mebibyte.
const MAX_REPORT_BYTES: usize = 64 << 20;

/// Responses that wait for Envoy to read. Grants are of use only at once, so there is room for few.
const MAX_WAITING: usize = 2;

/// A response that waited for longer is not sent: its grants would outlive their windows.
const MAX_AGE: Duration = Duration::from_millis(900);

pub(crate) type QuotaServer = RateLimitQuotaServiceServer<QuotaEndpoint>;

/// The rate limit quota service of Envoy.
///
/// Each stream is one Envoy and one domain, and has a task of its own.
#[derive(Clone)]
pub(crate) struct QuotaEndpoint(QuotaContext);

impl QuotaEndpoint {
    pub(crate) fn new(app: App, rules: Arc<CurrentRules>) -> QuotaEndpoint {
        register();
        QuotaEndpoint(QuotaContext::new(app, rules))
    }

    pub(crate) fn server(self) -> QuotaServer {
        RateLimitQuotaServiceServer::new(self).max_decoding_message_size(MAX_REPORT_BYTES)
    }
}

#[tonic::async_trait]
impl RateLimitQuotaService for QuotaEndpoint {
    type StreamRateLimitQuotasStream =
        Pin<Box<dyn Stream<Item = Result<RateLimitQuotaResponse, Status>> + Send>>;

    async fn stream_rate_limit_quotas(
        &self,
        request: Request<Streaming<RateLimitQuotaUsageReports>>,
    ) -> Result<Response<Self::StreamRateLimitQuotasStream>, Status> {
        if self.0.app.is_draining() {
            count_closed("draining");
            return Err(Status::unavailable("the server is ending"));
        }
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let stream = QuotaStream::new(self.0.clone(), request.into_inner(), sender);
        tokio::spawn(stream.run());
        Ok(Response::new(Box::pin(fresh_responses(receiver))))
    }
}

/// The responses in order, until one of them is too old to be sent.
fn fresh_responses(
    receiver: mpsc::Receiver<TimedResponse>,
) -> impl Stream<Item = Result<RateLimitQuotaResponse, Status>> {
    stream::unfold(Some(receiver), |receiver| async {
        let mut receiver = receiver?;
        let (made_at, response) = receiver.recv().await?;
        if made_at.elapsed() > MAX_AGE && response.is_ok() {
            count_closed("slow");
            tracing::warn!("an Envoy reads its quota stream too slowly: the stream is closed");
            return Some((Err(Status::aborted("responses are read too slowly")), None));
        }
        Some((response, Some(receiver)))
    })
}

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
use crate::{
    app::App,
    envoy::{CurrentRules, message_guard::MessageBounds},
};

/// Responses that wait for Envoy to read. Grants are of use only at once, so there is room for few.
const MAX_WAITING: usize = 2;

/// A response with an older assignment is not sent: its grants would outlive their windows. It is half of the time that
/// grants allow for a message, and the other half is for the network.
const MAX_AGE: Duration = Duration::from_millis(500);

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
        RateLimitQuotaServiceServer::new(self)
            .max_decoding_message_size(MessageBounds::QUOTA_REPORT.max_bytes)
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
            tracing::warn!("a quota response waited for more than 0.5 s: the stream is closed");
            return Some((Err(Status::aborted("a response waited for too long")), None));
        }
        Some((response, Some(receiver)))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use futures_util::StreamExt as _;
    use tonic::Code;

    use super::*;

    #[tokio::test]
    async fn a_response_with_an_old_assignment_ends_the_stream() {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let mut responses = std::pin::pin!(fresh_responses(receiver));
        let response = || Ok(RateLimitQuotaResponse::default());
        let now = Instant::now();
        let Some(old) = now.checked_sub(MAX_AGE) else {
            return;
        };
        sender.send((now, response())).await.unwrap();
        assert!(responses.next().await.unwrap().is_ok());

        sender.send((old, response())).await.unwrap();

        let status = responses.next().await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::Aborted);
        assert!(responses.next().await.is_none());
    }
}

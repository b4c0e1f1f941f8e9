//! Envoy rules over xDS: one stream of the aggregated discovery service, state of the world.
//!
//! - `connection.rs`: one HTTP/2 connection, with TLS and keep-alive.
//! - `codec.rs`: the messages of the stream.
//! - `backoff.rs`: the delays between attempts.
//! - `outage_log.rs`: the log lines about a server that is away.

mod backoff;
mod codec;
mod connection;
mod outage_log;

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use axum::http::uri::PathAndQuery;
use bytes::Bytes;
use futures_util::{future::OptionFuture, stream};
use metrics::{Gauge, gauge};
use ratelimit_envoy::{
    RESOURCE_TYPE, RulesResponse,
    proto::{
        envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest},
        google::rpc::Status,
    },
};
use tokio::{sync::mpsc, task::spawn_blocking, time::Instant};
use tonic::{Request, client::Grpc};

use self::{
    backoff::Backoff,
    codec::DiscoveryCodec,
    connection::{KeepAlive, XdsConnection},
    outage_log::OutageLog,
};
use crate::{
    cli_error::CliError,
    config::XdsConfig,
    envoy::{log_text::one_line, rules::CurrentRules},
    metrics::{ENVOY_XDS_CONNECTED, set_config_ok},
};

/// The rules of the xDS server in metrics.
const FILES: &str = "envoy_xds";

const METHOD: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// The largest response, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 << 20;
/// A connection that lasted this long ends an outage.
const STABLE: Duration = Duration::from_secs(30);
/// The maximum number of answers that the server has not read.
const MAX_UNREAD: usize = 64;
/// A stream without a response for this long gets a warning.
const FIRST_RESPONSE: Duration = Duration::from_secs(30);

/// Follows the rules of an xDS server.
///
/// - Each response has all rules. It is applied as a whole and acknowledged, or it is refused, and the rules stay.
/// - When the server is away the rules stay, and the client connects again, with backoff.
/// - A new stream asks without a version, so the server sends all rules: versions of a server that was restarted can
///   repeat.
pub(crate) struct XdsClient {
    config: XdsConfig,
    rules: Arc<CurrentRules>,
    connected: Gauge,
    /// The version of the response that was accepted last.
    version: String,
    /// The reason why the last response was refused.
    refusal: Option<String>,
    /// The delays of refusals: a server may answer each with the same response.
    refusals: Backoff,
    /// The time for the first response of a stream. A warning follows.
    first_response: Duration,
    /// Whether a stream without a response was logged since the last response.
    has_warned_of_silence: bool,
}

/// The answer to a response, and the time before it is sent.
struct DelayedRequest {
    delay: Duration,
    request: DiscoveryRequest,
}

impl XdsClient {
    pub(crate) fn new(config: XdsConfig, rules: Arc<CurrentRules>) -> XdsClient {
        XdsClient {
            config,
            rules,
            connected: gauge!(ENVOY_XDS_CONNECTED),
            version: String::new(),
            refusal: None,
            refusals: Backoff::new(),
            first_response: FIRST_RESPONSE,
            has_warned_of_silence: false,
        }
    }

    /// Connects, and applies each response; never returns.
    pub(crate) async fn follow(mut self) {
        self.connected.set(0.0);
        let server = &self.config.server;
        if server.is_plain_remote() {
            tracing::warn!(
                "the xDS server {server} may be on another machine, and http:// has neither encryption nor a proof \
                 of who sends the rules: use https://"
            );
        }
        let (mut backoff, mut log) = (Backoff::new(), OutageLog::default());
        loop {
            let ended = match XdsConnection::open(&self.config, KeepAlive::DEFAULT).await {
                Ok((connection, task)) => {
                    let opened = Instant::now();
                    self.connected.set(1.0);
                    let ended = self.follow_stream(connection, &mut log).await;
                    self.connected.set(0.0);
                    let error = task.error().await;
                    if opened.elapsed() >= STABLE {
                        backoff.reset();
                    }
                    ended.map_err(|why| error.unwrap_or(why))
                }
                Err(why) => Err(why),
            };
            if let Err(why) = ended {
                let why = one_line(&why);
                log.log_lost(std::time::Instant::now(), &self.config.server, &why);
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }

    /// Opens a stream and follows it to its end. The result is `Ok` if a new stream is to be opened at once.
    async fn follow_stream(
        &mut self,
        connection: XdsConnection,
        log: &mut OutageLog,
    ) -> Result<(), CliError> {
        let (requests, queue) = mpsc::channel(MAX_UNREAD);
        let requests_of_queue = stream::unfold(queue, async |mut queue| {
            let request: DiscoveryRequest = queue.recv().await?;
            Some((request, queue))
        });
        requests.try_send(self.request("", ""))?;
        let origin = self.config.server.uri().clone();
        let mut client =
            Grpc::with_origin(connection, origin).max_decoding_message_size(MAX_RESPONSE_BYTES);
        let opening = async {
            client.ready().await?;
            let requests = Request::new(Box::pin(requests_of_queue));
            let method = PathAndQuery::from_static(METHOD);
            let opened = client.streaming(requests, method, DiscoveryCodec).await?;
            let mut responses = opened.into_inner();
            let first = responses.message().await?;
            Ok::<_, CliError>((responses, first))
        };
        let opened = notify_late(opening, self.first_response, || {
            if !self.has_warned_of_silence {
                let (server, limit) = (&self.config.server, self.first_response);
                tracing::warn!(
                    "the xDS server {server} has sent no response for {limit:?}, the rules stay"
                );
            }
            self.has_warned_of_silence = true;
        });
        let (mut responses, first) = opened.await?;
        let mut first = Some(first);
        let mut reloads = self.rules.reloads();
        let mut refusal: OptionFuture<_> = None.into();
        loop {
            let next = async {
                match first.take() {
                    Some(first) => Ok(first),
                    None => responses.message().await,
                }
            };
            let response = tokio::select! {
                response = next => response?,
                Some(request) = &mut refusal => {
                    requests.try_send(request)?;
                    refusal = None.into();
                    continue;
                }
                // The files have changed since the last response was refused: it may be valid now.
                Ok(()) = reloads.changed(), if self.refusal.is_some() => return Ok(()),
            };
            let response = response.ok_or("the server has ended the stream")?;
            log.log_recovered(&self.config.server);
            self.has_warned_of_silence = false;
            reloads.mark_unchanged();
            let DelayedRequest { delay, request } = self.apply(response).await?;
            refusal = None.into();
            if delay.is_zero() {
                requests.try_send(request)?;
            } else {
                refusal = Some(Box::pin(async move {
                    tokio::time::sleep(delay).await;
                    request
                }))
                .into();
            }
        }
    }

    /// Applies a response, and returns the answer to it.
    async fn apply(&mut self, response: Bytes) -> Result<DelayedRequest, CliError> {
        let rules = Arc::clone(&self.rules);
        // Rules of some megabytes take longer than a request of Envoy may wait.
        let applied = spawn_blocking(move || {
            let response = RulesResponse::decode(&response)?;
            if response.type_url != RESOURCE_TYPE {
                let name = response.type_url;
                return Err(CliError::from(format!(
                    "the server has sent the type {name:?}"
                )));
            }
            let applied = response.resources.map_err(CliError::from);
            let applied = applied.and_then(|resources| {
                let number = resources.len();
                rules.adopt(resources).map(|is_new| (number, is_new))
            });
            Ok((response.version, response.nonce, applied))
        });
        let (version, nonce, applied) = applied.await??;
        match applied {
            Ok((number, is_new)) => {
                if is_new {
                    let version = one_line(&version);
                    tracing::info!(
                        "applied version {version:?} of the xDS server: {number} domains"
                    );
                }
                self.version = version;
                self.refusal = None;
                set_config_ok(FILES, true);
                self.refusals.reset();
                Ok(DelayedRequest {
                    delay: Duration::ZERO,
                    request: self.request(&self.version, &nonce),
                })
            }
            Err(why) => Ok(self.refuse(&version, &nonce, &one_line(&why))),
        }
    }

    /// Logs a refused response, and returns the answer with the reason.
    fn refuse(&mut self, version: &str, nonce: &str, why: &str) -> DelayedRequest {
        let delay = match &self.refusal {
            None => Duration::ZERO,
            Some(_) => self.refusals.next_delay(),
        };
        self.rules.count_reload(false);
        set_config_ok(FILES, false);
        if self.refusal.as_deref() != Some(why) {
            let version = one_line(version);
            tracing::error!(
                "version {version:?} of the xDS server is refused, the old rules stay: {why}"
            );
        }
        self.refusal = Some(why.to_owned());
        let mut request = self.request(&self.version, nonce);
        request.error_detail = Some(Status {
            code: tonic::Code::InvalidArgument.into(),
            message: why.to_owned(),
        });
        DelayedRequest { delay, request }
    }

    /// The request that answers the response with a nonce. The first one has neither version nor nonce.
    fn request(&self, version: &str, nonce: &str) -> DiscoveryRequest {
        DiscoveryRequest {
            version_info: version.to_owned(),
            node: Some(Node {
                id: self.config.node_id.clone(),
                ..Node::default()
            }),
            type_url: RESOURCE_TYPE.to_owned(),
            response_nonce: nonce.to_owned(),
            ..DiscoveryRequest::default()
        }
    }
}

/// Awaits a future, and calls `on_late` once if it takes longer than `limit`.
async fn notify_late<T>(
    future: impl Future<Output = T>,
    limit: Duration,
    on_late: impl FnOnce(),
) -> T {
    let mut future = pin!(future);
    if let Ok(done) = tokio::time::timeout(limit, &mut future).await {
        return done;
    }
    on_late();
    future.await
}

#[cfg(test)]
mod tests {
    use tokio::{net::TcpListener, sync::oneshot};

    use super::*;

    #[tokio::test]
    async fn a_stream_without_a_response_has_a_warning() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let addr = listener.local_addr().expect("an address");
        let config = XdsConfig::without_tls(&format!("http://{addr}"));
        let mut client = XdsClient::new(config, CurrentRules::waiting_for_xds());
        client.first_response = Duration::from_millis(1);
        let opened = XdsConnection::open(&client.config, KeepAlive::DEFAULT).await;
        let (connection, _task) = opened.expect("a connection");

        let mut log = OutageLog::default();
        let following = client.follow_stream(connection, &mut log);
        let ended = tokio::time::timeout(Duration::from_millis(50), following).await;

        assert!(ended.is_err(), "the client waits");
        assert!(client.has_warned_of_silence);
    }

    #[tokio::test]
    async fn a_late_future_is_notified_once_and_completes() {
        let (late, is_late) = oneshot::channel();
        let notified = notify_late(is_late, Duration::from_millis(1), || {
            late.send("late").expect("the future waits");
        });
        assert_eq!(notified.await, Ok("late"));

        let on_time = notify_late(async { 1 }, Duration::MAX, || panic!("it is not late"));
        assert_eq!(on_time.await, 1);
    }
}

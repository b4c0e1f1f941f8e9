//! Envoy rules over xDS: one stream of the aggregated discovery service, state of the world.
//!
//! - `connection.rs`: one HTTP/2 connection, with TLS and keep-alive.
//! - `backoff.rs`: the delays between attempts.
//! - `outage_log.rs`: the log lines about a server that is away.

mod backoff;
mod connection;
mod outage_log;

use std::{sync::Arc, time::Duration};

use futures_util::{future::OptionFuture, stream};
use metrics::{Gauge, gauge};
use ratelimit_envoy::{
    RESOURCE_TYPE, decode_resource,
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{
                DiscoveryRequest, DiscoveryResponse,
                aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
            },
        },
        google::rpc::Status,
    },
};
use tokio::{sync::mpsc, time::Instant};

use self::{
    backoff::Backoff,
    connection::{KeepAlive, XdsConnection},
    outage_log::OutageLog,
};
use crate::{
    cli_error::CliError, config::XdsConfig, envoy::rules::CurrentRules,
    metrics::ENVOY_XDS_CONNECTED,
};

/// The largest response, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 << 20;
/// A connection that lasted this long ends an outage.
const STABLE: Duration = Duration::from_secs(30);
/// The maximum number of answers that the server has not read.
const MAX_UNREAD: usize = 64;
/// The maximum length of a reason, in characters: some come from the server.
const MAX_REASON: usize = 2_000;

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
}

/// An answer to a response, and the time before it is sent.
struct Reply {
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
        }
    }

    /// Connects, and applies each response; never returns.
    pub(crate) async fn follow(mut self) {
        self.connected.set(0.0);
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
                        log.reset();
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
        let mut client = AggregatedDiscoveryServiceClient::with_origin(connection, origin)
            .max_decoding_message_size(MAX_RESPONSE_BYTES);
        let responses = client.stream_aggregated_resources(Box::pin(requests_of_queue));
        let mut responses = responses.await?.into_inner();
        let mut reloads = self.rules.reloads();
        let mut refusal: OptionFuture<_> = None.into();
        loop {
            let response = tokio::select! {
                response = responses.message() => response?,
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
            reloads.mark_unchanged();
            let Reply { delay, request } = self.apply(response).await?;
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
    async fn apply(&mut self, response: DiscoveryResponse) -> Result<Reply, CliError> {
        let DiscoveryResponse {
            version_info: version,
            resources,
            type_url,
            nonce,
        } = response;
        if type_url != RESOURCE_TYPE {
            return Err(format!("the server has sent the type {type_url:?}").into());
        }
        let rules = Arc::clone(&self.rules);
        // Rules of some megabytes take longer than a request of Envoy may wait.
        let applied = tokio::task::spawn_blocking(move || {
            let resources: Result<Vec<_>, _> = resources.iter().map(decode_resource).collect();
            let resources = resources?;
            let number = resources.len();
            let is_new = rules.adopt(resources)?;
            Ok::<_, CliError>((number, is_new))
        });
        match applied.await? {
            Ok((number, is_new)) => {
                if is_new {
                    tracing::info!(
                        "applied version {version:?} of the xDS server: {number} domains"
                    );
                }
                self.version = version;
                self.refusal = None;
                self.refusals.reset();
                Ok(Reply {
                    delay: Duration::ZERO,
                    request: self.request(&self.version, &nonce),
                })
            }
            Err(why) => Ok(self.refuse(&version, &nonce, &one_line(&why))),
        }
    }

    /// Logs a refused response, and returns the answer with the reason.
    fn refuse(&mut self, version: &str, nonce: &str, why: &str) -> Reply {
        let delay = match &self.refusal {
            None => Duration::ZERO,
            Some(_) => self.refusals.next_delay(),
        };
        self.rules.count_reload(false);
        if self.refusal.as_deref() != Some(why) {
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
        Reply { delay, request }
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

/// A reason with its causes, bounded and without line breaks: parts of it come from the server.
fn one_line(why: &CliError) -> String {
    let text = why.to_string();
    let letters = text.chars().take(MAX_REASON);
    let letters = letters.map(|letter| if letter.is_control() { ' ' } else { letter });
    letters.collect()
}

//! A server of the aggregated discovery service that tells what it is asked.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Instant,
};

use futures_util::{Stream, StreamExt as _, future, stream};
use prost::Message as _;
use ratelimit_envoy::proto::{
    envoy::service::discovery::v3::{
        DiscoveryRequest, DiscoveryResponse,
        aggregated_discovery_service_server::{
            AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
        },
    },
    ratelimit::config::ratelimit::v3::{
        RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
    },
};
use ratelimit_tests::chaos::Certificates;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    sync::mpsc,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tonic::{
    Request, Response, Status, Streaming,
    transport::server::{Connected, Server},
};

use crate::server::PATIENCE;

pub(super) const TYPE: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// Something that the server saw.
#[derive(Debug)]
pub(super) enum AdsEvent {
    /// A stream was opened.
    Opened(Instant),
    Asked(DiscoveryRequest),
    /// The client closed the stream.
    Closed,
}

/// How the server treats streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behaviour {
    Serve,
    /// It ends each stream at once.
    Refuse,
}

/// A server of its own runtime. Dropping it closes its sockets, as the end of a process does.
pub(super) struct AdsServer {
    pub(super) addr: SocketAddr,
    runtime: Option<Runtime>,
    events: mpsc::UnboundedReceiver<AdsEvent>,
    current: CurrentStream,
}

type ResponseSender = mpsc::UnboundedSender<Result<DiscoveryResponse, Status>>;
/// The sender of the stream that was opened last.
type CurrentStream = Arc<Mutex<Option<ResponseSender>>>;

impl AdsServer {
    pub(super) fn start() -> AdsServer {
        AdsServer::start_at(([127, 0, 0, 1], 0).into(), Behaviour::Serve)
    }

    pub(super) fn start_at(addr: SocketAddr, behaviour: Behaviour) -> AdsServer {
        AdsServer::start_with(addr, behaviour, None)
    }

    /// Starts with a certificate, and asks clients for one that the same root has signed.
    pub(super) fn start_tls(certificates: &Certificates) -> AdsServer {
        let acceptor = Some(acceptor(certificates));
        AdsServer::start_with(([127, 0, 0, 1], 0).into(), Behaviour::Serve, acceptor)
    }

    fn start_with(
        addr: SocketAddr,
        behaviour: Behaviour,
        acceptor: Option<TlsAcceptor>,
    ) -> AdsServer {
        let socket = std::net::TcpListener::bind(addr).unwrap();
        socket.set_nonblocking(true).unwrap();
        let addr = socket.local_addr().unwrap();
        let (sender, events) = mpsc::unbounded_channel();
        let current = CurrentStream::default();
        let service = AggregatedDiscoveryServiceServer::new(AdsService {
            events: sender,
            current: Arc::clone(&current),
            behaviour,
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.spawn(async move {
            let listener = TcpListener::from_std(socket).unwrap();
            let incoming = stream::unfold(listener, async |listener| {
                let accepted = listener.accept().await.map(|(stream, _)| stream);
                Some((accepted, listener))
            });
            let incoming = incoming.then(move |accepted| {
                let acceptor = acceptor.clone();
                async move {
                    let stream = accepted?;
                    Ok::<_, std::io::Error>(match acceptor {
                        Some(acceptor) => AdsSocket::Tls(Box::new(acceptor.accept(stream).await?)),
                        None => AdsSocket::Plain(stream),
                    })
                }
            });
            // A failed handshake ends its connection alone.
            let incoming = incoming.filter(|accepted| future::ready(accepted.is_ok()));
            let server = Server::builder().add_service(service);
            server
                .serve_with_incoming(Box::pin(incoming))
                .await
                .unwrap();
        });
        AdsServer {
            addr,
            runtime: Some(runtime),
            events,
            current,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(super) async fn next(&mut self) -> AdsEvent {
        let event = tokio::time::timeout(PATIENCE, self.events.recv()).await;
        event.expect("no event ever came").unwrap()
    }

    /// The time of the next stream.
    pub(super) async fn opened(&mut self) -> Instant {
        loop {
            if let AdsEvent::Opened(at) = self.next().await {
                return at;
            }
        }
    }

    /// The next request.
    pub(super) async fn asked(&mut self) -> DiscoveryRequest {
        loop {
            if let AdsEvent::Asked(request) = self.next().await {
                return request;
            }
        }
    }

    /// Whether events are waiting.
    pub(super) fn is_quiet(&self) -> bool {
        self.events.is_empty()
    }

    /// Sends a response on the newest stream. Its nonce is the version after `nonce-`.
    pub(super) fn send(&self, version: &str, resources: &[RateLimitConfig]) {
        let resources = resources
            .iter()
            .map(|resource| any(TYPE, resource.encode_to_vec()));
        self.send_raw(DiscoveryResponse {
            version_info: version.to_owned(),
            resources: resources.collect(),
            type_url: TYPE.to_owned(),
            nonce: format!("nonce-{version}"),
        });
    }

    pub(super) fn send_raw(&self, response: DiscoveryResponse) {
        let current = self.current.lock().unwrap();
        current.as_ref().unwrap().send(Ok(response)).unwrap();
    }

    /// Sends a response and returns the answer to it.
    pub(super) async fn apply(
        &mut self,
        version: &str,
        resources: &[RateLimitConfig],
    ) -> DiscoveryRequest {
        self.send(version, resources);
        let answer = self.asked().await;
        assert_eq!(answer.response_nonce, format!("nonce-{version}"));
        answer
    }
}

impl Drop for AdsServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A runtime cannot be dropped in another one. The sockets are closed when the thread ends.
            std::thread::spawn(move || drop(runtime)).join().unwrap();
        }
    }
}

struct AdsService {
    events: mpsc::UnboundedSender<AdsEvent>,
    current: CurrentStream,
    behaviour: Behaviour,
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for AdsService {
    type StreamAggregatedResourcesStream =
        Pin<Box<dyn Stream<Item = Result<DiscoveryResponse, Status>> + Send>>;

    async fn stream_aggregated_resources(
        &self,
        requests: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let (sender, responses) = mpsc::unbounded_channel();
        *self.current.lock().unwrap() = Some(sender);
        let _ = self.events.send(AdsEvent::Opened(Instant::now()));
        if self.behaviour == Behaviour::Refuse {
            return Err(Status::unavailable("this server refuses\nall streams"));
        }
        let (events, mut requests) = (self.events.clone(), requests.into_inner());
        tokio::spawn(async move {
            while let Ok(Some(request)) = requests.message().await {
                let _ = events.send(AdsEvent::Asked(request));
            }
            let _ = events.send(AdsEvent::Closed);
        });
        let responses = stream::unfold(responses, async |mut responses| {
            Some((responses.recv().await?, responses))
        });
        Ok(Response::new(Box::pin(responses)))
    }
}

/// A domain with one limit for each value of `user`.
pub(super) fn domain(name: &str, per_day: u32) -> RateLimitConfig {
    RateLimitConfig {
        name: name.to_owned(),
        domain: name.to_owned(),
        descriptors: vec![RateLimitDescriptor {
            key: "user".to_owned(),
            rate_limit: Some(RateLimitPolicy {
                unit: RateLimitUnit::Day.into(),
                requests_per_unit: per_day,
                ..RateLimitPolicy::default()
            }),
            ..RateLimitDescriptor::default()
        }],
    }
}

pub(super) fn any(type_url: &str, value: Vec<u8>) -> prost_types::Any {
    prost_types::Any {
        type_url: type_url.to_owned(),
        value,
    }
}

fn acceptor(certificates: &Certificates) -> TlsAcceptor {
    let read = |name: &str| std::fs::read(certificates.file(name)).unwrap();
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(&read("root.pem")).unwrap();
    roots.add(root).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let chain = vec![CertificateDer::from_pem_slice(&read("server.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(&read("server.key")).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A connection of the server.
enum AdsSocket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connected for AdsSocket {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for AdsSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            AdsSocket::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            AdsSocket::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for AdsSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            AdsSocket::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            AdsSocket::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            AdsSocket::Plain(stream) => Pin::new(stream).poll_flush(context),
            AdsSocket::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            AdsSocket::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            AdsSocket::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

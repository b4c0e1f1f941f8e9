//! A listening socket, its routes and its connections.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{
        HeaderValue, Request, Response, Version,
        header::{CONNECTION, HOST},
    },
    response::IntoResponse as _,
};
use futures_util::{FutureExt as _, future::Either};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use metrics::{Counter, counter};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::watch,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    accept_backoff::AcceptBackoff,
    access_log::{AccessRecord, NO_ROUTE},
    api_error::ApiError,
    app::App,
    client::{OverTls, Peer},
    config::Bounds,
    metrics::{STALLED_CONNECTIONS, TLS_HANDSHAKE_FAILURES},
    response_progress::{Overdue, ResponseProgress, TrackedStream, track_response},
    room::{OpenConnection, Room},
    routes::Routes,
    socket::{Accepted, Socket},
    tls::CurrentTls,
};

/// Maximum number of connections of the admin listener: probes, one or two Prometheus servers and operators.
pub(crate) const MAX_ADMIN_CONNECTIONS: usize = 128;

const MAX_HEAD_BYTES: usize = 64 * 1024;
const MAX_STREAMS: u32 = 256;
/// Streams that a peer has reset before they were accepted, on one connection. hyper's default is 20.
const MAX_RESET_STREAMS: usize = 1_024;
/// Bytes that a peer may send before a body is read, on a stream and on a connection of HTTP/2. hyper's default is 1 MiB for
/// both.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// Bytes of a response that a stream of HTTP/2 takes before the peer does. hyper's default is 400 KiB.
const MAX_SEND_BUFFER: usize = 64 * 1024;

/// A listening socket with the routes that it serves and its own limit of connections.
#[derive(Debug)]
pub struct Listener {
    name: &'static str,
    socket: Socket,
    routes: Routes,
    max_connections: usize,
    tls: Option<CurrentTls>,
    stalled: Counter,
}

impl Listener {
    fn new(
        name: &'static str,
        socket: Socket,
        routes: impl Into<Routes>,
        max_connections: usize,
    ) -> Listener {
        Listener {
            name,
            socket,
            routes: routes.into(),
            max_connections,
            tls: None,
            stalled: counter!(STALLED_CONNECTIONS, "listener" => name),
        }
    }

    /// The listener for checks. Without an admin listener it serves all routes.
    pub fn main(socket: TcpListener, app: &App) -> Listener {
        Listener::main_with(socket, app, Router::new())
    }

    /// The same with further routes.
    pub(crate) fn main_with(socket: TcpListener, app: &App, others: Router<App>) -> Listener {
        let routes = app.listener_routes(others);
        let max_connections = app.bounds().connections;
        Listener::new("main", Socket::Tcp(socket), routes, max_connections)
    }

    /// The listener of `--admin-listen`: health, metrics and admin calls.
    pub fn admin(socket: TcpListener, app: &App) -> Listener {
        Listener::new(
            "admin",
            Socket::Tcp(socket),
            app.admin_router(),
            MAX_ADMIN_CONNECTIONS,
        )
    }

    /// The listener of `--envoy-listen`, with the routes of its gRPC services.
    #[cfg(feature = "envoy")]
    pub(crate) fn envoy(socket: Socket, router: Router, app: &App) -> Listener {
        Listener::new("envoy", socket, router, app.bounds().connections)
    }

    /// The listener of `--envoy-metrics-listen`: the metrics under one path.
    pub(crate) fn metrics(socket: TcpListener, app: &App, path: &str) -> Listener {
        Listener::new(
            "metrics",
            Socket::Tcp(socket),
            app.metrics_router(path),
            MAX_ADMIN_CONNECTIONS,
        )
    }

    /// Serves TLS only.
    pub(crate) fn tls(mut self, tls: CurrentTls) -> Listener {
        self.tls = Some(tls);
        self
    }

    /// Serves connections until `closing` completes, then those that wait in the accept queue, and closes the socket.
    pub(crate) async fn accept_until(
        self,
        connections: &Connections,
        closing: impl Future<Output = ()>,
    ) {
        let mut room = Room::new(self.name, self.max_connections);
        let mut backoff = AcceptBackoff::new(self.name);
        let mut closing = pin!(closing);
        loop {
            let permit = tokio::select! {
                () = &mut closing => break,
                permit = room.wait() => permit,
            };
            tokio::select! {
                () = &mut closing => break,
                accepted = self.socket.accept() => {
                    self.start(connections, accepted, room.count(permit), &mut backoff).await;
                }
            }
        }
        // Connections in the accept queue are established for their clients, so serve them too.
        while let Some(accepted) = self.socket.accept().now_or_never() {
            // A process without free file descriptors has one error after the other.
            let (true, Some(permit)) = (accepted.is_ok(), room.permit_now()) else {
                break;
            };
            let open = room.count(permit);
            self.start(connections, accepted, open, &mut backoff).await;
        }
    }

    async fn start(
        &self,
        connections: &Connections,
        accepted: io::Result<Accepted>,
        open: OpenConnection,
        backoff: &mut AcceptBackoff,
    ) {
        let service = |peer| Service {
            routes: self.routes.clone(),
            peer,
            is_tls: self.tls.is_some(),
            listener: self.name,
            stalled: self.stalled.clone(),
            progress: ResponseProgress::new(),
        };
        if accepted.is_ok() {
            backoff.reset();
        }
        match accepted {
            Ok(Accepted::Tcp(stream, peer)) => {
                connections.spawn(stream, service(Some(peer)), self.handshake(), open);
            }
            Ok(Accepted::Unix(stream)) => {
                connections.spawn(stream, service(None), self.handshake(), open);
            }
            Err(why) => {
                drop(open);
                backoff.wait(&why).await;
            }
        }
    }

    fn handshake(&self) -> Option<Handshake> {
        let tls = self.tls.as_ref()?;
        Some(Handshake {
            acceptor: tls.acceptor(),
            listener: self.name,
        })
    }
}

/// The bytes of a connection.
trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> ByteStream for S {}

/// The routes for the requests of one peer.
struct Service {
    routes: Routes,
    /// The address of the peer; `None` on a unix socket.
    peer: Option<SocketAddr>,
    is_tls: bool,
    listener: &'static str,
    /// Counts connections whose peer takes no responses.
    stalled: Counter,
    progress: Arc<ResponseProgress>,
}

/// The TLS handshake of a connection.
struct Handshake {
    acceptor: TlsAcceptor,
    listener: &'static str,
}

impl Handshake {
    /// Returns the encrypted stream, or `None` if the handshake fails or takes longer than `timeout`.
    async fn accept<S: ByteStream>(
        self,
        stream: S,
        peer: Option<SocketAddr>,
        timeout: Duration,
    ) -> Option<TlsStream<S>> {
        let why = match tokio::time::timeout(timeout, self.acceptor.accept(stream)).await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(why)) => why.to_string(),
            Err(_) => "it took too long".to_owned(),
        };
        counter!(TLS_HANDSHAKE_FAILURES, "listener" => self.listener).increment(1);
        // Scanners cause such errors at will, so they are counted and not logged by default.
        tracing::debug!(
            ?peer,
            listener = self.listener,
            "a TLS handshake failed: {why}"
        );
        None
    }
}

/// The connections of all listeners.
pub(crate) struct Connections {
    settings: ConnectionSettings,
    /// Each connection has a receiver.
    closing: watch::Sender<()>,
}

#[derive(Clone)]
struct ConnectionSettings {
    builder: auto::Builder<TokioExecutor>,
    header_timeout: Duration,
}

impl Connections {
    pub(crate) fn new(app: &App) -> Connections {
        let bounds = app.bounds();
        Connections {
            settings: ConnectionSettings {
                builder: builder(bounds),
                header_timeout: bounds.header,
            },
            closing: watch::Sender::new(()),
        }
    }

    /// Ends each connection after its current request.
    pub(crate) async fn shutdown(self) {
        self.closing.send_replace(());
        self.closing.closed().await;
    }

    fn spawn(
        &self,
        stream: impl ByteStream,
        service: Service,
        handshake: Option<Handshake>,
        open: OpenConnection,
    ) {
        let settings = self.settings.clone();
        // Made before the handshake, so a shutdown waits for the connection from now on.
        let closing = self.closing.subscribe();
        tokio::spawn(async move {
            let _open = open;
            let Some(handshake) = handshake else {
                return serve_stream(&settings, stream, service, closing).await;
            };
            let accepted = handshake.accept(stream, service.peer, settings.header_timeout);
            if let Some(stream) = accepted.await {
                serve_stream(&settings, stream, service, closing).await;
            }
        });
    }
}

/// Serves the requests of one connection until it ends.
async fn serve_stream(
    settings: &ConnectionSettings,
    stream: impl ByteStream,
    service: Service,
    mut closing: watch::Receiver<()>,
) {
    let ConnectionSettings {
        builder,
        header_timeout,
    } = settings;
    let has_request = Arc::new(AtomicBool::new(false));
    let saw_request = Arc::clone(&has_request);
    let (peer, listener) = (service.peer, service.listener);
    let (progress, stalled) = (Arc::clone(&service.progress), service.stalled.clone());
    let stream = TokioIo::new(TrackedStream::new(stream, Arc::clone(&progress)));
    let service = service_fn(move |request: Request<Incoming>| {
        saw_request.store(true, Ordering::Relaxed);
        respond(&service, request)
    });
    let connection = builder.serve_connection_with_upgrades(stream, service);
    let mut connection = pin!(connection.into_owned());
    // Hyper applies no timeout before the first byte and while it detects the HTTP version.
    let mut first_request = pin!(tokio::time::sleep(*header_timeout));
    let mut awaits_request = true;
    let mut is_closing = false;
    loop {
        tokio::select! {
            // An error ends only this connection.
            _ = &mut connection => return,
            _ = closing.changed(), if !is_closing => {
                is_closing = true;
                connection.as_mut().graceful_shutdown();
            }
            () = &mut first_request, if awaits_request => {
                awaits_request = false;
                if !has_request.load(Ordering::Relaxed) {
                    return;
                }
            }
            overdue = progress.overdue(*header_timeout) => match overdue {
                Overdue::Idle => {
                    connection.as_mut().graceful_shutdown();
                    // A peer that does not close the connection either has the same time for it.
                    if tokio::time::timeout(*header_timeout, &mut connection).await.is_ok() {
                        return;
                    }
                    if progress.is_idle() {
                        return;
                    }
                }
                Overdue::Stalled => {
                    stalled.increment(1);
                    tracing::debug!(?peer, listener, "closed a connection whose peer takes no responses");
                    return;
                }
            },
        }
    }
}

fn respond(
    service: &Service,
    mut request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Body>, Infallible>> + use<> {
    if let Some(peer) = service.peer {
        request.extensions_mut().insert(Peer(peer));
    }
    if service.is_tls {
        request.extensions_mut().insert(OverTls);
    }
    let progress = Arc::clone(&service.progress);
    let open = (request.version() == Version::HTTP_2).then(|| progress.begin());
    let responding = if lacks_host(&request) {
        Either::Left(std::future::ready(Ok(without_host(request))))
    } else {
        Either::Right(service.routes.call(request))
    };
    responding.map(move |response| Ok(track_response(response?, &progress, open)))
}

/// Whether a request of HTTP/1.1 has no `Host`, which RFC 9112 forbids.
fn lacks_host(request: &Request<Incoming>) -> bool {
    request.version() == Version::HTTP_11 && !request.headers().contains_key(HOST)
}

fn without_host(request: Request<Incoming>) -> Response<Body> {
    let record = AccessRecord::start(&request.map(Body::new), NO_ROUTE);
    let mut response = ApiError::bad_request("HTTP/1.1 needs a Host header").into_response();
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    record.finish(response.status());
    response
}

fn builder(bounds: Bounds) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.header)
        .max_buf_size(MAX_HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(bounds.header))
        .keep_alive_timeout(bounds.header)
        .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(MAX_SEND_BUFFER)
        // A proxy that gives up on many calls at once, because this process paused, must not lose the others too.
        .max_pending_accept_reset_streams(Some(MAX_RESET_STREAMS));
    builder
}

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

use axum::{Router, http::Request};
use futures_util::FutureExt as _;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
};
use metrics::counter;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    app::App,
    client::{OverTls, Peer},
    config::Bounds,
    metrics::TLS_HANDSHAKE_FAILURES,
    room::{OpenConnection, Room},
    routes::Routes,
    socket::{Accepted, Socket},
    tls::CurrentTls,
};

/// Maximum number of connections of the admin listener: probes, one or two Prometheus servers and operators.
const MAX_ADMIN_CONNECTIONS: usize = 128;

const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_HEAD_BYTES: usize = 64 * 1024;
const MAX_STREAMS: u32 = 256;
/// Streams that a peer has reset before they were accepted, on one connection. hyper's default is 20.
const MAX_RESET_STREAMS: usize = 1_024;

/// A listening socket with the routes that it serves and its own limit of connections.
#[derive(Debug)]
pub struct Listener {
    name: &'static str,
    socket: Socket,
    routes: Routes,
    max_connections: usize,
    tls: Option<CurrentTls>,
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
        let mut closing = pin!(closing);
        loop {
            let permit = tokio::select! {
                () = &mut closing => break,
                permit = room.wait() => permit,
            };
            tokio::select! {
                () = &mut closing => break,
                accepted = self.socket.accept() => {
                    self.start(connections, accepted, room.count(permit)).await;
                }
            }
        }
        // Connections in the accept queue are established for their clients, so serve them too.
        while let Some(accepted) = self.socket.accept().now_or_never() {
            let Some(permit) = room.permit_now() else {
                break;
            };
            self.start(connections, accepted, room.count(permit)).await;
        }
    }

    async fn start(
        &self,
        connections: &Connections,
        accepted: io::Result<Accepted>,
        open: OpenConnection,
    ) {
        let service = |peer| Service {
            routes: self.routes.clone(),
            peer,
            is_tls: self.tls.is_some(),
        };
        match accepted {
            Ok(Accepted::Tcp(stream, peer)) => {
                connections.spawn(stream, service(Some(peer)), self.handshake(), open);
            }
            Ok(Accepted::Unix(stream)) => {
                connections.spawn(stream, service(None), self.handshake(), open);
            }
            Err(why) => {
                // Without a delay, running out of file descriptors would be a busy loop.
                tracing::warn!("a connection could not be accepted: {why}");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
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
    builder: auto::Builder<TokioExecutor>,
    header_timeout: Duration,
    graceful: GracefulShutdown,
}

impl Connections {
    pub(crate) fn new(bounds: Bounds) -> Connections {
        Connections {
            builder: builder(bounds),
            header_timeout: bounds.header,
            graceful: GracefulShutdown::new(),
        }
    }

    /// Ends each connection after its current request.
    pub(crate) async fn shutdown(self) {
        self.graceful.shutdown().await;
    }

    fn spawn(
        &self,
        stream: impl ByteStream,
        service: Service,
        handshake: Option<Handshake>,
        open: OpenConnection,
    ) {
        let (builder, header_timeout) = (self.builder.clone(), self.header_timeout);
        // Made before the handshake, so a shutdown waits for the connection from now on.
        let watcher = self.graceful.watcher();
        tokio::spawn(async move {
            let _open = open;
            let Some(handshake) = handshake else {
                return serve_stream(&builder, stream, service, watcher, header_timeout).await;
            };
            let accepted = handshake.accept(stream, service.peer, header_timeout).await;
            if let Some(stream) = accepted {
                serve_stream(&builder, stream, service, watcher, header_timeout).await;
            }
        });
    }
}

/// Serves the requests of one connection until it ends.
async fn serve_stream(
    builder: &auto::Builder<TokioExecutor>,
    stream: impl ByteStream,
    service: Service,
    watcher: Watcher,
    header_timeout: Duration,
) {
    let has_request = Arc::new(AtomicBool::new(false));
    let saw_request = Arc::clone(&has_request);
    let service = service_fn(move |request: Request<Incoming>| {
        saw_request.store(true, Ordering::Relaxed);
        respond(&service, request)
    });
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = pin!(watcher.watch(connection.into_owned()));
    // Hyper applies no timeout before the first byte and while it detects the HTTP version.
    tokio::select! {
        _ = &mut connection => return,
        () = tokio::time::sleep(header_timeout) => {}
    }
    if has_request.load(Ordering::Relaxed) {
        // An error ends only this connection.
        let _ = connection.await;
    }
}

fn respond(
    service: &Service,
    mut request: Request<Incoming>,
) -> impl Future<Output = Result<axum::response::Response, Infallible>> + use<> {
    if let Some(peer) = service.peer {
        request.extensions_mut().insert(Peer(peer));
    }
    if service.is_tls {
        request.extensions_mut().insert(OverTls);
    }
    service.routes.call(request)
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
        // A proxy that gives up on many calls at once, because this process paused, must not lose the others too.
        .max_pending_accept_reset_streams(Some(MAX_RESET_STREAMS));
    builder
}

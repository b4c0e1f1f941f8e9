//! Listening, serving and graceful shutdown.

use std::{
    convert::Infallible,
    future::Future,
    io::{self, Write as _},
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, http::Request};
use futures_util::FutureExt as _;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use tokio::{
    net::{TcpListener, TcpStream},
    signal::unix::{SignalKind, signal},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tower::ServiceExt as _;

use crate::{
    app::App,
    cli_error::CliError,
    client::Peer,
    config::{Bounds, Config, Settings, unknown_variables},
    logging, metrics, reload,
    startup_banner::StartupBanner,
};

/// Time after SIGTERM in which idle connections stay open, so clients see `Connection: close` in a response.
const DRAIN_DELAY: Duration = Duration::from_secs(1);

/// Time to wait for Redis before the server starts without it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_HEAD_BYTES: usize = 64 * 1024;
const MAX_STREAMS: u32 = 256;

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
///
/// Fails if the configuration is invalid or the address cannot be bound.
pub async fn run(settings: &Settings) -> Result<(), CliError> {
    let version = reload::file_version(settings);
    let config = Config::load(settings)?;
    logging::start(&config);
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|why| format!("cannot listen on {}: {why}", config.listen))?;
    let listen = listener.local_addr()?;
    let metrics = metrics::install(&config.application)?;
    let (limiter, is_connected) = config.store.connected_limiter(CONNECT_TIMEOUT).await;
    let app = App::new(&config, limiter, listen, metrics.clone());
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // All handlers are installed now, so no signal terminates the process by default.
    let hangup = signal(SignalKind::hangup())?;

    let banner = StartupBanner {
        config: &config,
        listen,
    };
    let mut out = io::stdout();
    write!(out, "{banner}").and_then(|()| out.flush())?;
    if !is_connected {
        tracing::warn!("Redis does not answer: serving without it until it does");
    }
    if banner.is_exposed() && config.rules.admin.is_none() {
        tracing::warn!(%listen, "listening beyond this machine without an admin token");
    }
    for unknown in unknown_variables() {
        tracing::warn!("{unknown}");
    }
    reload::log_warnings(&config, settings);
    tokio::spawn(metrics::upkeep(metrics));
    tokio::spawn(reload::follow(
        app.clone(),
        settings.clone(),
        version,
        hangup,
    ));
    serve(listener, app, async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
    .await;
    Ok(())
}

/// Serves until `shutdown` completes, then finishes the requests that have arrived.
///
/// During the shutdown every response has `Connection: close`. Connections that are idle one second later are
/// closed. Other connections are closed after their last response, or when the shutdown timeout expires.
pub async fn serve(listener: TcpListener, app: App, shutdown: impl Future<Output = ()>) {
    let bounds = app.bounds();
    let server = Server {
        router: app.router(),
        builder: builder(bounds),
        bounds,
        graceful: GracefulShutdown::new(),
        permit: Arc::new(Semaphore::new(bounds.connections)),
    };
    let mut shutdown = pin!(shutdown);
    loop {
        let permit = tokio::select! {
            () = &mut shutdown => break,
            permit = Arc::clone(&server.permit).acquire_owned() => permit,
        };
        let Ok(permit) = permit else { break };
        tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => server.start(accepted, permit).await,
        }
    }
    app.drain();
    tracing::info!("ending: open connections are served, new ones are not");
    // Connections in the accept queue are established for their clients, so serve them too.
    while let Some(accepted) = listener.accept().now_or_never() {
        let Ok(permit) = Arc::clone(&server.permit).try_acquire_owned() else {
            break;
        };
        server.start(accepted, permit).await;
    }
    drop(listener);
    tokio::time::sleep(DRAIN_DELAY).await;
    let ended = tokio::time::timeout(bounds.shutdown, server.graceful.shutdown()).await;
    if ended.is_err() {
        tracing::warn!("connections were still open after the shutdown timeout");
    }
}

struct Server {
    router: Router,
    builder: auto::Builder<TokioExecutor>,
    bounds: Bounds,
    graceful: GracefulShutdown,
    permit: Arc<Semaphore>,
}

impl Server {
    async fn start(
        &self,
        accepted: io::Result<(TcpStream, SocketAddr)>,
        permit: OwnedSemaphorePermit,
    ) {
        match accepted {
            Ok((stream, peer)) => self.spawn_connection(stream, peer, permit),
            Err(why) => {
                // Without a delay, running out of file descriptors would be a busy loop.
                tracing::warn!("a connection could not be accepted: {why}");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }

    fn spawn_connection(&self, stream: TcpStream, peer: SocketAddr, permit: OwnedSemaphorePermit) {
        // An error means that the connection is already closed; serving it fails next.
        let _ = stream.set_nodelay(true);
        let router = self.router.clone();
        let has_request = Arc::new(AtomicBool::new(false));
        let saw_request = Arc::clone(&has_request);
        let service = service_fn(move |request: Request<Incoming>| {
            saw_request.store(true, Ordering::Relaxed);
            respond(router.clone(), peer, request)
        });
        let connection = self
            .builder
            .serve_connection_with_upgrades(TokioIo::new(stream), service)
            .into_owned();
        let connection = self.graceful.watch(connection);
        let header_timeout = self.bounds.header;
        tokio::spawn(async move {
            let _room = permit;
            let mut connection = pin!(connection);
            // Hyper applies no timeout before the first byte and while it detects the HTTP version.
            tokio::select! {
                _ = &mut connection => return,
                () = tokio::time::sleep(header_timeout) => {}
            }
            if has_request.load(Ordering::Relaxed) {
                // An error ends only this connection.
                let _ = connection.await;
            }
        });
    }
}

async fn respond(
    router: Router,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<axum::response::Response, Infallible> {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(Peer(peer));
    router.oneshot(request).await
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
        .max_concurrent_streams(MAX_STREAMS);
    builder
}

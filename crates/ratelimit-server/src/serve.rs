//! Listens, serves, and ends without dropping a request.

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
    caller::Peer,
    config::{Bounds, Config, Settings},
    failure::Failure,
    logs, metrics, reload,
    screen::Screen,
};

/// How long clients have after SIGTERM to learn from an answer that their connection ends.
const LINGER: Duration = Duration::from_secs(1);

/// How long to wait for Redis before serving without it.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

const PAUSE_AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(50);
const LONGEST_HEAD: usize = 64 * 1024;
const MOST_STREAMS: u32 = 256;

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
///
/// When the configuration cannot stand, or the address is taken.
pub async fn run(settings: &Settings) -> Result<(), Failure> {
    let seen = reload::mark(settings);
    let config = Config::load(settings)?;
    logs::start(&config);
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|why| format!("cannot listen on {}: {why}", config.listen))?;
    let listen = listener.local_addr()?;
    let metrics = metrics::install(&config.application)?;
    let (limiter, answers) = config.store.connected_limiter(CONNECT_WITHIN).await;
    let app = App::new(&config, limiter, listen, metrics.clone());
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // From here on no signal that is meant for us ends the process.
    let hangup = signal(SignalKind::hangup())?;

    let screen = Screen {
        config: &config,
        listen,
    };
    let mut out = io::stdout();
    write!(out, "{screen}").and_then(|()| out.flush())?;
    if !answers {
        tracing::warn!("Redis does not answer: serving without it until it does");
    }
    if screen.is_exposed() && config.rules.admin.is_none() {
        tracing::warn!(%listen, "listening beyond this machine without an admin token");
    }
    reload::tell_warnings(&config, settings);
    tokio::spawn(metrics::upkeep(metrics));
    tokio::spawn(reload::follow(app.clone(), settings.clone(), seen, hangup));
    serve(listener, app, async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
    .await;
    Ok(())
}

/// Serves until `shutdown`, then lets every request end that has come.
///
/// Once it ends, answers say `Connection: close`; connections that are idle for a second after that
/// are closed, and all others when their last answer is written or their time is up.
pub async fn serve(listener: TcpListener, app: App, shutdown: impl Future<Output = ()>) {
    let bounds = app.bounds();
    let server = Server {
        router: app.router(),
        builder: builder(bounds),
        bounds,
        graceful: GracefulShutdown::new(),
        room: Arc::new(Semaphore::new(bounds.connections)),
    };
    let mut shutdown = pin!(shutdown);
    loop {
        let room = tokio::select! {
            () = &mut shutdown => break,
            room = Arc::clone(&server.room).acquire_owned() => room,
        };
        let Ok(room) = room else { break };
        tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => server.start(accepted, room).await,
        }
    }
    app.drain();
    tracing::info!("ending: open connections are served, new ones are not");
    // Clients whose connection waits to be accepted believe that they are connected.
    while let Some(accepted) = listener.accept().now_or_never() {
        let Ok(room) = Arc::clone(&server.room).try_acquire_owned() else {
            break;
        };
        server.start(accepted, room).await;
    }
    drop(listener);
    tokio::time::sleep(LINGER).await;
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
    room: Arc<Semaphore>,
}

impl Server {
    async fn start(
        &self,
        accepted: io::Result<(TcpStream, SocketAddr)>,
        room: OwnedSemaphorePermit,
    ) {
        match accepted {
            Ok((stream, peer)) => self.connected(stream, peer, room),
            Err(why) => {
                // Without a pause, a lack of file descriptors would be a busy loop.
                tracing::warn!("a connection could not be accepted: {why}");
                tokio::time::sleep(PAUSE_AFTER_FAILED_ACCEPT).await;
            }
        }
    }

    fn connected(&self, stream: TcpStream, peer: SocketAddr, room: OwnedSemaphorePermit) {
        // An error means that the connection is gone already, which serving it will find out.
        let _ = stream.set_nodelay(true);
        let router = self.router.clone();
        let has_asked = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&has_asked);
        let service = service_fn(move |request: Request<Incoming>| {
            asked.store(true, Ordering::Relaxed);
            answer(router.clone(), peer, request)
        });
        let connection = self
            .builder
            .serve_connection_with_upgrades(TokioIo::new(stream), service)
            .into_owned();
        let connection = self.graceful.watch(connection);
        let patience = self.bounds.header;
        tokio::spawn(async move {
            let _room = room;
            let mut connection = pin!(connection);
            // Before the first byte, and while the version is guessed, nothing else watches the time.
            tokio::select! {
                _ = &mut connection => return,
                () = tokio::time::sleep(patience) => {}
            }
            if has_asked.load(Ordering::Relaxed) {
                // An error ends this one connection, and is the client's to notice.
                let _ = connection.await;
            }
        });
    }
}

async fn answer(
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
        .max_buf_size(LONGEST_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(bounds.header))
        .keep_alive_timeout(bounds.header)
        .max_header_list_size(u32::try_from(LONGEST_HEAD).unwrap_or(u32::MAX))
        .max_concurrent_streams(MOST_STREAMS);
    builder
}

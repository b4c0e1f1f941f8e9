//! Listening, serving and graceful shutdown.

#[cfg(feature = "envoy")]
use std::sync::Arc;
use std::{
    future::Future,
    io::{self, IsTerminal as _, Write as _},
    net::SocketAddr,
    pin::pin,
    time::Duration,
};

use axum::Router;
use futures_util::future::{join, join_all};
use ratelimit_core::RedisStore;
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    sync::{oneshot, watch},
    task::spawn_blocking,
    time::timeout,
};

#[cfg(feature = "envoy")]
use crate::envoy::{CurrentRules, RateLimitEndpoint, XdsClient, json_routes};
use crate::{
    app::App,
    cli_error::CliError,
    config::{Config, ListenAddr, Settings, unknown_variables},
    listener::{Connections, Listener},
    logging, metrics, open_files, reload,
    reload_channel::reload_channel,
    socket::Socket,
    startup_banner::StartupBanner,
    tls::ServerTls,
};

/// Time after the last accept in which idle connections stay open, so clients see `Connection: close` in a response.
const IDLE_DELAY: Duration = Duration::from_secs(1);

/// Time to connect to Redis before the log says that it does not answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time to print the start screen.
const BANNER_WITHIN: Duration = Duration::from_secs(1);

/// Time for giving prefetched units back at the end.
const RETURN_WITHIN: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or SIGINT. A second signal ends without waiting for open connections.
///
/// # Errors
///
/// Fails if the configuration is invalid or an address cannot be bound.
#[allow(clippy::too_many_lines, reason = "the start, step by step")]
pub async fn run(settings: &Settings) -> Result<(), CliError> {
    let (mut config, versions) = reload::load_with_versions(settings)?;
    #[cfg(feature = "envoy")]
    if let Some(xds) = config.envoy.as_ref().and_then(|envoy| envoy.xds.as_ref()) {
        xds.check_files()?;
    }
    let log = logging::start(&config);
    open_files::fit_connections(&mut config);
    let main = bind(config.listen).await?;
    let listen = main.local_addr()?;
    let admin = match config.admin_listen {
        Some(addr) => Some(bind(addr).await?),
        None => None,
    };
    let admin_listen = admin.as_ref().map(TcpListener::local_addr).transpose()?;
    let envoy = match &config.envoy {
        Some(envoy) => Some(bind_envoy(&envoy.listen).await?),
        None => None,
    };
    let prometheus = match config.metrics_listen() {
        Some(addr) => Some(bind(addr).await?),
        None => None,
    };
    let prometheus_listen = prometheus.as_ref().map(TcpListener::local_addr);
    let prometheus_listen = prometheus_listen.transpose()?;
    let envoy_listen = envoy.as_ref().map(Socket::local_addr).transpose()?;
    let tls = config.tls.clone().map(ServerTls::new).transpose()?;
    let envoy_tls = config.envoy.as_ref().and_then(|envoy| envoy.tls.clone());
    let envoy_tls = envoy_tls.map(ServerTls::new).transpose()?;
    let metrics = metrics::install(&config.application)?;
    let (limiter, redis) = config.store.limiter_and_redis();
    let app = App::new(&config, limiter, listen, metrics);
    tokio::spawn(log.count_dropped());
    let (mut envoy, envoy_routes) = start_envoy(&config, envoy, &app).await?;
    let mut signals = StopSignals::new()?;
    let hangup = signal(SignalKind::hangup())?;
    ignore_user_signals()?;
    // All handlers are installed now, so no signal that others send by habit terminates the process by default.

    let has_setting = config.rules.admin.is_some() || config.admin_without_token;
    let generated_token =
        (!has_setting && io::stdout().is_terminal()).then(|| app.generate_admin_token());
    let banner = StartupBanner {
        config: &config,
        listen,
        admin_listen,
        envoy_listen,
        prometheus_listen,
        generated_token: generated_token.as_deref(),
        console: app.console_mode(&config.rules),
    };
    print_banner(banner.to_string()).await;
    if banner.is_exposed() && config.admin_listen.is_none() && config.rules.admin.is_none() {
        tracing::warn!(%listen, "listening beyond this machine without an admin token");
    }
    if banner.shows_console_in_clear() {
        tracing::warn!("the console is served beyond this machine over plain http");
    }
    log_notes(&config, settings);
    reload::log_warnings(&config, settings);
    if let Some(redis) = redis {
        app.await_store();
        tokio::spawn(connect(redis, app.clone(), config.readiness_grace));
    }
    let (reload, reload_requests) = reload_channel();
    app.config_state().set_reload(reload);
    tokio::spawn(reload::follow(
        app.clone(),
        settings.clone(),
        config.settings.clone(),
        versions,
        hangup,
        reload_requests,
    ));
    let mut main = Listener::main_with(main, &app, envoy_routes);
    let mut admin = admin.map(|socket| Listener::admin(socket, &app));
    if let Some(tls) = tls {
        main = main.tls(tls.main.clone());
        admin = admin.map(|listener| listener.tls(tls.admin.clone()));
        envoy = envoy.map(|listener| listener.tls(tls.main.clone()));
        tokio::spawn(tls.follow(app.config_state().hangups.subscribe()?));
    }
    if let Some(tls) = envoy_tls {
        envoy = envoy.map(|listener| listener.tls(tls.main.clone()));
        tokio::spawn(tls.follow(app.config_state().hangups.subscribe()?));
    }
    let prometheus = prometheus.map(|socket| {
        let path = config.metrics_path().unwrap_or_default();
        Listener::metrics(socket, &app, path)
    });
    let listeners = std::iter::once(main).chain(admin).chain(envoy);
    let listeners = listeners.chain(prometheus).collect();
    serve_until_signal(listeners, app, &mut signals).await;
    Ok(())
}

/// Logs the warnings about flags and the environment.
fn log_notes(config: &Config, settings: &Settings) {
    for unknown in unknown_variables() {
        tracing::warn!("{unknown}");
    }
    for warning in settings.policy_warnings() {
        tracing::warn!("{warning}");
    }
    for note in &config.environment_notes {
        if note.is_warning {
            tracing::warn!("{note}");
        } else {
            tracing::info!("{note}");
        }
    }
}

/// The listener for Envoy, and its routes of the main listener. Its rules are loaded, and read again when they change.
#[cfg(feature = "envoy")]
async fn start_envoy(
    config: &Config,
    socket: Option<Socket>,
    app: &App,
) -> Result<(Option<Listener>, Router<App>), CliError> {
    let (Some(envoy), Some(socket)) = (&config.envoy, socket) else {
        return Ok((None, Router::new()));
    };
    let rules = Arc::new(CurrentRules::load(envoy.clone(), app.clone())?);
    if let Some(xds) = &envoy.xds {
        app.await_envoy_rules();
        tokio::spawn(XdsClient::new(xds.clone(), Arc::clone(&rules)).follow());
    }
    let endpoint = RateLimitEndpoint::new(app.clone(), Arc::clone(&rules), envoy);
    app.config_state().set_envoy_rules(rules.subscribe());
    tokio::spawn(rules.follow(app.config_state().hangups.subscribe()?));
    let routes = json_routes(endpoint.clone());
    let listener = Listener::envoy(socket, endpoint.router().await, app);
    Ok((Some(listener), routes))
}

#[cfg(not(feature = "envoy"))]
async fn start_envoy(
    _: &Config,
    _: Option<Socket>,
    _: &App,
) -> Result<(Option<Listener>, Router<App>), CliError> {
    Ok((None, Router::new()))
}

async fn bind_envoy(addr: &ListenAddr) -> Result<Socket, CliError> {
    let bound = Socket::bind(addr).await;
    bound.map_err(|why| format!("cannot listen on {addr}: {why}").into())
}

async fn bind(addr: SocketAddr) -> Result<TcpListener, CliError> {
    let bound = TcpListener::bind(addr).await;
    bound.map_err(|why| format!("cannot listen on {addr}: {why}").into())
}

/// Connects to Redis, and marks the server ready then, or after the grace period.
async fn connect(redis: RedisStore, app: App, grace: Option<Duration>) {
    let connected = async {
        if !redis.wait_connected(CONNECT_TIMEOUT).await {
            tracing::warn!(
                ready_after = grace.map(tracing::field::debug),
                "Redis does not answer: not ready until it does or the readiness grace is over"
            );
            // Each call looks at the current slot map of a cluster, so a node that failed over is not waited for.
            while !redis.wait_connected(CONNECT_TIMEOUT).await {}
            tracing::info!("Redis answers: ready");
        }
    };
    match grace {
        Some(grace) => await_store(&app, connected, tokio::time::sleep(grace)).await,
        None => await_store(&app, connected, std::future::pending()).await,
    }
}

/// Marks the server ready when `connected` completes, and as degraded if the readiness grace is over before.
///
/// After a restart of all servers during an outage of Redis there would be no endpoint otherwise, although each server can
/// limit on its own.
async fn await_store(
    app: &App,
    connected: impl Future<Output = ()>,
    grace_over: impl Future<Output = ()>,
) {
    let mut connected = pin!(connected);
    tokio::select! {
        biased;
        () = &mut connected => {}
        () = grace_over => {
            app.end_readiness_grace();
            tracing::warn!("the readiness grace is over: ready without Redis, and the fallback of each policy applies");
            connected.await;
        }
    }
    app.mark_store_connected();
}

async fn serve_until_signal(listeners: Vec<Listener>, app: App, signals: &mut StopSignals) {
    let (stop, stopped) = oneshot::channel::<()>();
    let mut serving = pin!(serve(listeners, app, async {
        // An error means that the sender was dropped, which ends the server as well.
        let _ = stopped.await;
    }));
    tokio::select! {
        () = &mut serving => return,
        () = signals.next() => {}
    }
    // An error means that the server has ended.
    let _ = stop.send(());
    tokio::select! {
        () = serving => {}
        () = signals.next() => tracing::warn!("a second signal: open connections are closed"),
    }
}

/// Prints the start screen. An error is logged, and a reader that hangs is not waited for: the server serves without it.
async fn print_banner(banner: String) {
    let printed = spawn_blocking(move || {
        let mut out = io::stdout();
        out.write_all(banner.as_bytes()).and_then(|()| out.flush())
    });
    match timeout(BANNER_WITHIN, printed).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(why))) => tracing::warn!("the start screen cannot be printed: {why}"),
        Ok(Err(why)) => tracing::warn!("the start screen cannot be printed: {why}"),
        Err(_) => {
            tracing::warn!("the start screen is not printed yet: nothing reads standard output");
        }
    }
}

/// Ignores SIGUSR1 and SIGUSR2, which other servers rotate their logs on. The runtime of Rust ignores SIGPIPE.
fn ignore_user_signals() -> io::Result<()> {
    let mut one = signal(SignalKind::user_defined1())?;
    let mut two = signal(SignalKind::user_defined2())?;
    tokio::spawn(async move {
        loop {
            let name = tokio::select! {
                Some(()) = one.recv() => "SIGUSR1",
                Some(()) = two.recv() => "SIGUSR2",
                else => return,
            };
            tracing::info!(
                "{name} has no effect: SIGHUP reads the configuration again, SIGTERM ends the server"
            );
        }
    });
    Ok(())
}

/// SIGTERM and SIGINT.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn new() -> io::Result<StopSignals> {
        Ok(StopSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Serves until `shutdown` completes, then finishes the requests that have arrived.
///
/// 1. Readiness fails at once. Connections are accepted and served for the drain delay.
/// 2. The sockets are closed, and every response has `Connection: close`.
/// 3. Connections that are idle one second later are closed. Others are closed after their last response, or when the
///    shutdown timeout expires.
/// 4. Prefetched units of windows and counters are given back to Redis.
pub async fn serve(listeners: Vec<Listener>, app: App, shutdown: impl Future<Output = ()>) {
    let bounds = app.bounds();
    let connections = Connections::new(&app);
    // Dropping the set ends its tasks.
    #[cfg(feature = "console")]
    let mut tasks = tokio::task::JoinSet::new();
    #[cfg(feature = "console")]
    tasks.spawn(crate::console::sample(app.clone()));
    let (close, closing) = watch::channel(false);
    let accepting = join_all(listeners.into_iter().map(|listener| {
        let mut closing = closing.clone();
        listener.accept_until(&connections, async move {
            // An error means that the sender was dropped.
            let _ = closing.wait_for(|is_closing| *is_closing).await;
        })
    }));
    let stopping = async {
        shutdown.await;
        app.drain();
        if !bounds.drain.is_zero() {
            let drain_delay = bounds.drain;
            tracing::info!(
                ?drain_delay,
                "not ready any more: still accepting connections"
            );
            tokio::time::sleep(drain_delay).await;
        }
        app.close();
        tracing::info!("ending: open connections are served, new ones are not");
        close.send_replace(true);
    };
    join(accepting, stopping).await;
    tokio::time::sleep(IDLE_DELAY).await;
    let ended = timeout(bounds.shutdown, connections.shutdown()).await;
    if ended.is_err() {
        tracing::warn!("connections were still open after the shutdown timeout");
    }
    let returned = app.limiter().return_prefetched();
    if timeout(RETURN_WITHIN, returned).await.is_err() {
        tracing::warn!(
            "prefetched units were not given back in time: they count until their windows end"
        );
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use futures_util::FutureExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::metrics::recorder;

    fn app() -> App {
        let config = Config::load(&Settings::default()).expect("the defaults");
        let metrics = recorder(&config.application).handle();
        let app = App::new(&config, config.store.limiter(), config.listen, metrics);
        app.await_store();
        app
    }

    async fn readiness(app: &App) -> (u16, String) {
        let request = Request::get("/actuator/health/readiness").body(Body::empty());
        let response = app.router().oneshot(request.expect("a request")).await;
        let response = response.expect("an answer");
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
        let body = String::from_utf8(body.expect("a body").to_vec());
        (status, body.expect("UTF-8"))
    }

    #[tokio::test]
    async fn without_redis_the_server_is_ready_and_degraded_when_the_grace_is_over() {
        let app = app();
        let (answer, answered) = oneshot::channel::<()>();
        let (end, ended) = oneshot::channel::<()>();
        let mut waiting = pin!(await_store(
            &app,
            async { answered.await.expect("an answer") },
            async { ended.await.expect("an end") },
        ));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(readiness(&app).await.0, 503);

        end.send(()).expect("it is awaited");
        assert!(waiting.as_mut().now_or_never().is_none());

        let (status, body) = readiness(&app).await;
        assert_eq!(status, 200);
        assert!(body.contains(r#""degraded":true"#), "{body}");

        answer.send(()).expect("it is awaited");
        waiting.await;
        let up = r#"{"status":"UP"}"#.to_owned();
        assert_eq!(readiness(&app).await, (200, up));
    }

    #[tokio::test]
    async fn a_redis_that_answers_in_time_leaves_nothing_degraded() {
        let app = app();

        await_store(&app, async {}, async {}).await;

        let up = r#"{"status":"UP"}"#.to_owned();
        assert_eq!(readiness(&app).await, (200, up));
    }
}

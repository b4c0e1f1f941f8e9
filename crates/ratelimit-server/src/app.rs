//! The application state of the server.

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use ratelimit_core::Limiter;
use ratelimit_http::response::HeaderStyle;
use tokio::sync::watch;

use crate::{
    config::{AdminToken, Bounds, Config, ConsoleMode, ReloadableConfig},
    config_state::ConfigState,
    memory_budget::MemoryBudget,
    metrics::{MetricsHandle, SharedRendering},
    receipt_token::ReceiptTokens,
    refusal_log::{BadCallLogs, RefusalLog},
    sign_in_limit::SignInLimit,
};
#[cfg(feature = "console")]
use crate::{
    live_feed::LiveFeed,
    sampler::{PolicyRates, Sampler},
};

/// The server without sockets: state, and the router over it.
///
/// - [`router`](Self::router) returns the routes; tests and other servers call it directly.
/// - [`adopt`](Self::adopt) replaces the rules while requests are served.
/// - Clones share one state.
///
/// ```
/// use axum::{body::Body, http::Request};
/// use ratelimit_server::{App, Config, Settings, recorder};
/// use tower::ServiceExt as _;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let config = Config::load(&Settings::default())?;
/// let metrics = recorder(&config.application).handle();
/// let app = App::new(&config, config.store.limiter(), config.listen, metrics);
///
/// let check = Request::get("/api/v1/rate-limit/check?key=user:123").body(Body::empty())?;
/// let response = app.router().oneshot(check).await?;
/// assert_eq!(response.headers()["x-ratelimit-remaining"], "99");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct App(Arc<AppInner>);

struct AppInner {
    limiter: Limiter,
    rules: RwLock<Arc<ReloadableConfig>>,
    config_state: ConfigState,
    metrics: MetricsHandle,
    rendering: SharedRendering,
    /// The document `/openapi.json`, and the rules whose policies it names.
    openapi: RwLock<Option<(Arc<ReloadableConfig>, Bytes)>>,
    memory_budget: MemoryBudget,
    #[cfg(feature = "envoy")]
    envoy_memory_budget: MemoryBudget,
    listen: SocketAddr,
    store: &'static str,
    receipt_tokens: ReceiptTokens,
    application: String,
    headers: HeaderStyle,
    bounds: Bounds,
    warned: AtomicBool,
    warned_of_host: AtomicBool,
    warned_of_silent_proxy: AtomicBool,
    /// Token of this process, for a start without a token file.
    generated_token: OnceLock<AdminToken>,
    admin_without_token: bool,
    has_store: AtomicBool,
    is_grace_over: AtomicBool,
    envoy_rules: watch::Sender<bool>,
    refusals: RefusalLog,
    bad_calls: BadCallLogs,
    draining: watch::Sender<bool>,
    closing: AtomicBool,
    admin_listen: Option<SocketAddr>,
    /// The mode that was set.
    console: Option<ConsoleMode>,
    #[cfg(feature = "console")]
    shows_offender_keys: bool,
    sign_ins: SignInLimit,
    #[cfg(feature = "console")]
    sampler: Sampler,
    #[cfg(feature = "console")]
    live: LiveFeed,
}

impl App {
    /// Creates the server of a configuration. `listen` is the address that clients connect to.
    ///
    /// # Panics
    ///
    /// Panics if `/dev/urandom` cannot be read.
    pub fn new(
        config: &Config,
        limiter: Limiter,
        listen: SocketAddr,
        metrics: MetricsHandle,
    ) -> App {
        limiter.set_log_key_display(config.rules.log_key_display());
        App(Arc::new(AppInner {
            limiter,
            rules: RwLock::new(Arc::new(config.rules.clone())),
            config_state: ConfigState::new(config),
            #[cfg(feature = "console")]
            sampler: Sampler::new(metrics.clone()),
            rendering: SharedRendering::default(),
            metrics,
            openapi: RwLock::default(),
            memory_budget: MemoryBudget::rest(),
            #[cfg(feature = "envoy")]
            envoy_memory_budget: MemoryBudget::envoy(),
            listen,
            store: config.store.kind(),
            receipt_tokens: ReceiptTokens::new(&config.store),
            application: config.application.clone(),
            headers: config.headers,
            bounds: config.bounds,
            warned: AtomicBool::new(false),
            warned_of_host: AtomicBool::new(false),
            warned_of_silent_proxy: AtomicBool::new(false),
            generated_token: OnceLock::new(),
            admin_without_token: config.admin_without_token,
            has_store: AtomicBool::new(true),
            is_grace_over: AtomicBool::new(false),
            envoy_rules: watch::Sender::new(true),
            refusals: RefusalLog::default(),
            bad_calls: BadCallLogs::default(),
            draining: watch::Sender::new(false),
            closing: AtomicBool::new(false),
            admin_listen: config.admin_listen,
            console: config.console(),
            #[cfg(feature = "console")]
            shows_offender_keys: config.shows_offender_keys(),
            sign_ins: SignInLimit::default(),
            #[cfg(feature = "console")]
            live: LiveFeed::default(),
        }))
    }

    /// Replaces policies, trusted proxies, key pattern and admin token. Requests in flight keep the old ones.
    pub fn adopt(&self, rules: ReloadableConfig) {
        self.0.limiter.set_log_key_display(rules.log_key_display());
        let mut current = self.0.rules.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, Arc::new(rules));
        // Thousands of old policies are dropped here, and not under the lock that each request takes.
        drop(current);
        drop(old);
    }

    /// Makes readiness fail until [`mark_store_connected`](Self::mark_store_connected).
    pub(crate) fn await_store(&self) {
        self.0.has_store.store(false, Ordering::Relaxed);
    }

    pub(crate) fn mark_store_connected(&self) {
        self.0.has_store.store(true, Ordering::Relaxed);
    }

    /// Lets the server be ready although the store has not been connected.
    pub(crate) fn end_readiness_grace(&self) {
        self.0.is_grace_over.store(true, Ordering::Relaxed);
    }

    /// Whether the server is ready without the store.
    pub(crate) fn is_readiness_grace_over(&self) -> bool {
        self.0.is_grace_over.load(Ordering::Relaxed)
    }

    /// Whether the store has been connected since the start; it may be unreachable again.
    pub(crate) fn has_store(&self) -> bool {
        self.0.has_store.load(Ordering::Relaxed)
    }

    /// Makes readiness fail until [`mark_envoy_rules_loaded`](Self::mark_envoy_rules_loaded).
    #[cfg(feature = "envoy")]
    pub(crate) fn await_envoy_rules(&self) {
        self.0.envoy_rules.send_replace(false);
    }

    #[cfg(feature = "envoy")]
    pub(crate) fn mark_envoy_rules_loaded(&self) {
        self.0.envoy_rules.send_replace(true);
    }

    /// Whether the xDS server has sent rules since the start, or there is none.
    pub(crate) fn has_envoy_rules(&self) -> bool {
        *self.0.envoy_rules.borrow()
    }

    /// Completes when [`has_envoy_rules`](Self::has_envoy_rules) holds.
    #[cfg(feature = "envoy")]
    pub(crate) async fn envoy_rules_loaded(&self) {
        let mut loaded = self.0.envoy_rules.subscribe();
        // An error means that the sender was dropped, which `self` prevents.
        let _ = loaded.wait_for(|is_loaded| *is_loaded).await;
    }

    /// Starts the shutdown: readiness fails.
    pub fn drain(&self) {
        self.0.draining.send_replace(true);
    }

    /// Every response has `Connection: close` from now on.
    pub(crate) fn close(&self) {
        self.0.closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.0.closing.load(Ordering::Relaxed)
    }

    pub(crate) fn is_draining(&self) -> bool {
        *self.0.draining.borrow()
    }

    /// Completes when the shutdown starts.
    #[cfg(any(feature = "console", feature = "envoy"))]
    pub(crate) async fn drained(&self) {
        let mut draining = self.0.draining.subscribe();
        // An error means that the sender was dropped, which `self` prevents.
        let _ = draining.wait_for(|is_draining| *is_draining).await;
    }

    pub(crate) fn rules(&self) -> Arc<ReloadableConfig> {
        let rules = self.0.rules.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&rules)
    }

    pub(crate) fn config_state(&self) -> &ConfigState {
        &self.0.config_state
    }

    pub(crate) fn limiter(&self) -> &Limiter {
        &self.0.limiter
    }

    pub(crate) fn metrics(&self) -> &MetricsHandle {
        &self.0.metrics
    }

    /// The rendered metrics that callers share.
    pub(crate) fn rendering(&self) -> &SharedRendering {
        &self.0.rendering
    }

    /// The document that `make` returns for the current rules. All responses share it.
    pub(crate) fn openapi(&self, make: impl FnOnce(&ReloadableConfig) -> String) -> Bytes {
        let rules = self.rules();
        let openapi = self
            .0
            .openapi
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((made_for, document)) = &*openapi
            && Arc::ptr_eq(made_for, &rules)
        {
            return document.clone();
        }
        drop(openapi);
        let document = Bytes::from(make(&rules));
        let mut openapi = self
            .0
            .openapi
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *openapi = Some((rules, document.clone()));
        document
    }

    /// The bytes that requests of the REST API may take.
    pub(crate) fn memory_budget(&self) -> &MemoryBudget {
        &self.0.memory_budget
    }

    /// The bytes that calls of the gRPC services may take.
    #[cfg(feature = "envoy")]
    pub(crate) fn envoy_memory_budget(&self) -> &MemoryBudget {
        &self.0.envoy_memory_budget
    }

    #[cfg(feature = "console")]
    pub(crate) fn sampler(&self) -> &Sampler {
        &self.0.sampler
    }

    #[cfg(feature = "console")]
    pub(crate) fn live(&self) -> &LiveFeed {
        &self.0.live
    }

    /// The rates of a policy in the last second.
    #[cfg(feature = "console")]
    pub(crate) fn policy_rates(&self, name: &str) -> PolicyRates {
        self.0.sampler.policy_rates(name)
    }

    pub(crate) fn listen(&self) -> SocketAddr {
        self.0.listen
    }

    /// The configured address of the admin listener.
    pub(crate) fn admin_listen(&self) -> Option<SocketAddr> {
        self.0.admin_listen
    }

    /// The token that admin calls must carry. A token file wins over a generated token.
    pub(crate) fn admin_token<'a>(&'a self, rules: &'a ReloadableConfig) -> Option<&'a AdminToken> {
        rules.admin.as_ref().or(self.0.generated_token.get())
    }

    /// Creates a random admin token for this process, and returns its text.
    pub(crate) fn generate_admin_token(&self) -> String {
        let (token, text) = AdminToken::generate();
        // The first token stays: the caller generates one at the start only.
        let _ = self.0.generated_token.set(token);
        text
    }

    pub(crate) fn admits_without_token(&self) -> bool {
        self.0.admin_without_token
    }

    /// The mode of the console. The default is to read where admin calls are possible.
    pub(crate) fn console_mode(&self, rules: &ReloadableConfig) -> ConsoleMode {
        let has_access = self.admin_token(rules).is_some() || self.admits_without_token();
        match self.0.console {
            Some(mode) => mode,
            None if has_access && cfg!(feature = "console") => ConsoleMode::Read,
            None => ConsoleMode::Off,
        }
    }

    /// Whether offenders are shown by their keys, and not by digests.
    #[cfg(feature = "console")]
    pub(crate) fn shows_offender_keys(&self) -> bool {
        self.0.shows_offender_keys
    }

    pub(crate) fn sign_ins(&self) -> &SignInLimit {
        &self.0.sign_ins
    }

    pub(crate) fn store(&self) -> &'static str {
        self.0.store
    }

    pub(crate) fn receipt_tokens(&self) -> &ReceiptTokens {
        &self.0.receipt_tokens
    }

    pub(crate) fn application(&self) -> &str {
        &self.0.application
    }

    pub(crate) fn headers(&self) -> HeaderStyle {
        self.0.headers
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.0.bounds
    }

    pub(crate) fn refusals(&self) -> &RefusalLog {
        &self.0.refusals
    }

    pub(crate) fn bad_calls(&self) -> &BadCallLogs {
        &self.0.bad_calls
    }

    /// Returns true once: the caller logs a refused `Host` then.
    pub(crate) fn warns_of_host_first_time(&self) -> bool {
        !self.0.warned_of_host.swap(true, Ordering::Relaxed)
    }

    /// Returns true once: the caller logs its warning about a trusted proxy that names no client.
    pub(crate) fn warns_first_time_of_silent_proxy(&self) -> bool {
        !self.0.warned_of_silent_proxy.swap(true, Ordering::Relaxed)
    }

    /// Returns true once: the caller logs its warning then.
    pub(crate) fn warns_first_time(&self) -> bool {
        !self.0.warned.swap(true, Ordering::Relaxed)
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App")
            .field("listen", &self.0.listen)
            .field("limiter", &self.0.limiter)
            .finish_non_exhaustive()
    }
}

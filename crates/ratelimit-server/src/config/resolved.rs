//! The validated configuration.

use std::{
    collections::HashSet,
    fmt,
    io::{self, IsTerminal as _},
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    time::Duration,
};

use axum::http::HeaderName;
use ratelimit_core::{
    Algorithm, FailureMode, KeyDisplay, Limiter, MemoryStore, Offenders, Policy, RedisConfig,
    RedisStore,
};
use ratelimit_http::{
    client_ip::{ChainHeader, ClientIpResolver},
    policy_file::Diagnostic,
    response::HeaderStyle,
};
use tracing_subscriber::filter::{LevelFilter, Targets};

use super::{
    admin_token::AdminToken,
    duration::{Grace, Span},
    envoy::EnvoyConfig,
    file::ConfigFile,
    invalid::InvalidConfig,
    memory_or_redis::{check_with_redis, check_without_redis},
    offenders::offenders,
    policies::Policies,
    proxies,
    ratelimit_env::EnvironmentNote,
    settings::{LogFormat, Settings},
    tls::{self, TlsFiles},
    values::{HostName, KeyPattern, RedisUrl},
};

/// Longer than a Redis that is up takes to answer, and shorter than an operator waits for an endpoint.
const DEFAULT_READINESS_GRACE: Duration = Duration::from_secs(10);

/// A validated configuration of the server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The listen address.
    pub listen: SocketAddr,
    /// The listen address of metrics, info and admin calls, if it is not the same.
    pub admin_listen: Option<SocketAddr>,
    /// Whether callers on this machine need no admin token.
    pub admin_without_token: bool,
    /// The certificate files, if the listeners have TLS.
    pub(crate) tls: Option<TlsFiles>,
    /// The listener for Envoy.
    pub(crate) envoy: Option<EnvoyConfig>,
    /// The store of budgets.
    pub store: StoreConfig,
    /// The part that a reload replaces.
    pub rules: ReloadableConfig,
    /// Timeouts and maximum sizes.
    pub bounds: Bounds,
    /// How long readiness waits for the first connection to Redis; `None` for as long as it takes.
    pub(crate) readiness_grace: Option<Duration>,
    /// The style of rate-limit headers.
    pub headers: HeaderStyle,
    /// The label `application` of all metrics.
    pub application: String,
    /// The log filter.
    pub log: Targets,
    /// The log format.
    pub log_format: LogFormat,
    /// The settings of flags and environment.
    pub(crate) given: Settings,
    /// The merged settings of flags, environment and file.
    pub(crate) settings: Settings,
    /// Warnings about the file.
    pub(crate) warnings: Vec<Diagnostic>,
    /// Variables of Envoy's rate limit server that are not read as settings.
    pub(crate) environment_notes: Vec<EnvironmentNote>,
}

/// The part of the configuration that a reload replaces.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReloadableConfig {
    /// The policies by name.
    pub policies: Policies,
    /// Finds the client IP for requests without a key.
    pub client: ClientIpResolver,
    /// The networks of trusted peers.
    #[cfg(feature = "console")]
    pub(crate) trusted: Vec<String>,
    pub(crate) chain_header: ChainHeader,
    /// The header in which trusted peers send the path of the original request.
    pub(crate) path_header: Option<HeaderName>,
    pub(crate) key_pattern: Option<KeyPattern>,
    pub(crate) admin: Option<AdminToken>,
    pub(crate) allowed_hosts: Vec<HostName>,
    pub(crate) log_keys: bool,
    /// Whether a check must name a policy or an algorithm.
    pub(crate) requires_policy: bool,
    #[cfg(feature = "console")]
    pub(crate) settings: super::reloadable::ReloadableSettings,
    /// The Envoy rules of the file.
    #[cfg(feature = "envoy")]
    pub(crate) envoy: Option<super::envoy_rules::EnvoyRules>,
}

/// Timeouts and maximum sizes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Bounds {
    /// Maximum duration of a request.
    pub request: Duration,
    /// Maximum time to receive a request head, and maximum idle time of a connection.
    pub header: Duration,
    /// Time in which a server that is to end still accepts connections, while readiness fails.
    pub drain: Duration,
    /// Maximum time for open connections to finish during a shutdown.
    pub shutdown: Duration,
    /// Maximum body size, in bytes.
    pub body: usize,
    /// Maximum number of open connections.
    pub connections: usize,
    /// Maximum time for Redis to decide a check.
    pub decision: Duration,
}

/// The store of budgets, and its failure mode.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    redis: Option<(RedisUrl, RedisConfig)>,
    memory_keys: usize,
    /// Keys of the local fallback; `None` for the default of the limiter.
    local_keys: Option<NonZeroUsize>,
    memory_bytes: usize,
    on_failure: FailureMode,
    without_deny_cache: bool,
    shared_prefix: Option<String>,
    offenders: Offenders,
}

impl Config {
    /// Reads the configuration file of `settings`, merges both and validates the result.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read or a setting is invalid.
    pub fn load(settings: &Settings) -> Result<Config, InvalidConfig> {
        check_policy_names(settings)?;
        let file = settings.file().map(ConfigFile::read).transpose()?;
        let (file, warnings) =
            file.map_or_else(Default::default, |file| (file.settings, file.warnings));
        let given = settings.clone();
        let (settings, notes) = settings.clone().with_ratelimit_env(&file)?;
        let mut config = Config::of(settings.or(file))?;
        config.given = given;
        config.warnings.splice(..0, warnings);
        config.environment_notes = notes;
        Ok(config)
    }

    /// Validates merged settings.
    pub(crate) fn of(settings: Settings) -> Result<Config, InvalidConfig> {
        let span = |span: Option<Span>, secs| span.map_or(Duration::from_secs(secs), |span| span.0);
        let bounds = Bounds {
            request: span(settings.request_timeout, 10),
            header: span(settings.header_timeout, 30),
            drain: settings
                .drain_delay
                .map_or_else(default_drain, |delay| delay.0),
            shutdown: span(settings.shutdown_timeout, 20),
            body: settings.max_body.unwrap_or(1 << 20),
            connections: settings.max_connections.map_or(10_000, NonZeroUsize::get),
            decision: settings
                .time_budget
                .map_or(RedisConfig::DEFAULT_TIMEOUT, |span| span.0),
        };
        let application = settings.application.as_deref();
        let config = Config {
            listen: settings
                .listen
                .unwrap_or((Ipv4Addr::LOCALHOST, 8080).into()),
            admin_listen: settings.admin_listen,
            admin_without_token: settings.admin_without_token == Some(true),
            given: Settings::default(),
            settings: settings.clone(),
            tls: TlsFiles::of(&settings)?,
            envoy: EnvoyConfig::of(&settings)?,
            store: StoreConfig::of(&settings)?,
            bounds,
            readiness_grace: match settings.readiness_grace {
                None => Some(DEFAULT_READINESS_GRACE),
                Some(Grace::After(grace)) => Some(grace),
                Some(Grace::Never) => None,
            },
            headers: settings
                .headers
                .map_or(HeaderStyle::XRateLimit, HeaderStyle::from),
            application: application.unwrap_or("distributed-rate-limiter").to_owned(),
            log: settings
                .log
                .clone()
                .map_or_else(default_log, |filter| filter.0),
            log_format: settings.log_format.unwrap_or_default(),
            rules: ReloadableConfig::of(settings)?,
            warnings: Vec::new(),
            environment_notes: Vec::new(),
        };
        #[cfg(feature = "envoy")]
        let config = config.with_envoy_rules()?;
        config.check_listeners()?;
        config.check_admin_without_token()?;
        config.check_console()?;
        config.check_key_bytes(config.rules.policies.iter())?;
        config.rules.check_path_rules()?;
        Ok(config)
    }

    /// Checks the Envoy rules of the file, and adds the warnings about them.
    #[cfg(feature = "envoy")]
    fn with_envoy_rules(mut self) -> Result<Config, InvalidConfig> {
        let mut builder = ratelimit_envoy::RulesBuilder::new();
        if let Some(rules) = &self.rules.envoy {
            let warnings = rules.add_to(&mut builder, &self.rules.policies)?;
            self.warnings.extend(warnings);
        }
        self.check_key_bytes(builder.build().policies().iter())?;
        Ok(self)
    }

    /// Checks that the memory store can hold the largest key of each policy.
    fn check_key_bytes<'p>(
        &self,
        policies: impl Iterator<Item = &'p Policy>,
    ) -> Result<(), InvalidConfig> {
        let max_bytes = self.store.memory_store().max_key_bytes();
        for policy in policies {
            let bytes = MemoryStore::max_bytes_of(policy);
            if bytes > max_bytes {
                return Err(InvalidConfig::KeyExceedsMemory {
                    policy: policy.name().to_owned(),
                    bytes,
                    max_bytes,
                });
            }
        }
        Ok(())
    }
}

fn default_log() -> Targets {
    Targets::new().with_default(LevelFilter::INFO)
}

/// Checks that flags and environment define each policy once. A policy of the file is replaced by one of these.
fn check_policy_names(settings: &Settings) -> Result<(), InvalidConfig> {
    let mut names = HashSet::new();
    let mut policies = settings.policy.iter().map(|policy| policy.0.name());
    match policies.find(|name| !names.insert(*name)) {
        Some(twice) => Err(InvalidConfig::DuplicatePolicy {
            policy: twice.to_owned(),
        }),
        None => Ok(()),
    }
}

/// A load balancer needs some seconds to see that the server is not ready. Someone at a terminal waits for the end.
fn default_drain() -> Duration {
    if io::stdout().is_terminal() {
        Duration::ZERO
    } else {
        Duration::from_secs(5)
    }
}

impl ReloadableConfig {
    fn of(mut settings: Settings) -> Result<ReloadableConfig, InvalidConfig> {
        let policies = Policies::new(std::mem::take(&mut settings.policy));
        // A configured `token_bucket` is the default that was chosen for checks without a name.
        let needs_policy = policies.configured().next().is_some()
            && policies.is_built_in(Algorithm::TokenBucket.as_str());
        let admin = settings.admin_token_file.as_deref().map(AdminToken::read);
        Ok(ReloadableConfig {
            #[cfg(feature = "console")]
            settings: super::reloadable::ReloadableSettings::new(&settings),
            client: proxies::resolver(&settings)?,
            #[cfg(feature = "console")]
            trusted: proxies::trusted_networks(&settings),
            path_header: settings.path_header,
            chain_header: settings.chain_header.map(|name| name.0).unwrap_or_default(),
            admin: admin.transpose()?,
            allowed_hosts: settings.allowed_host,
            key_pattern: settings.key_pattern,
            log_keys: settings.log_keys.unwrap_or(false),
            requires_policy: settings.require_policy.unwrap_or(needs_policy),
            policies,
            #[cfg(feature = "envoy")]
            envoy: settings.envoy_rules,
        })
    }

    /// The form of keys in the log.
    pub(crate) fn log_key_display(&self) -> KeyDisplay {
        if self.log_keys {
            KeyDisplay::Plain
        } else {
            KeyDisplay::Fingerprint
        }
    }

    /// Checks that forward-auth knows the path of a request if a rule compares it. No other call applies rules.
    fn check_path_rules(&self) -> Result<(), InvalidConfig> {
        let policy = self.policies.with_path_rules().next();
        match policy.filter(|_| self.path_header.is_none()) {
            Some(policy) => Err(InvalidConfig::PathRules {
                policy: policy.name().to_owned(),
            }),
            None => Ok(()),
        }
    }
}

impl StoreConfig {
    fn of(settings: &Settings) -> Result<StoreConfig, InvalidConfig> {
        let prefix = settings.redis_prefix.clone();
        let redis = if let Some(url) = settings.redis.clone() {
            let config = redis_config(settings, &url)?;
            check_with_redis(settings)?;
            Some((url, config))
        } else {
            check_without_redis(settings)?;
            None
        };
        Ok(StoreConfig {
            redis,
            memory_keys: settings.memory_keys(),
            local_keys: settings.local_keys,
            memory_bytes: settings.memory_bytes(),
            shared_prefix: settings.redis.as_ref().map(|_| prefix.unwrap_or_default()),
            offenders: offenders(settings),
            on_failure: settings
                .on_failure
                .map_or(FailureMode::Local, FailureMode::from),
            without_deny_cache: settings.no_deny_cache.unwrap_or(false),
        })
    }

    /// A limiter over this store. The first check connects to Redis.
    pub fn limiter(&self) -> Limiter {
        self.limiter_and_redis().0
    }

    /// A limiter over this store, and its Redis store.
    pub(crate) fn limiter_and_redis(&self) -> (Limiter, Option<RedisStore>) {
        let config = self.redis.as_ref().map(|(_, config)| config.clone());
        let redis = config.map(RedisStore::new);
        (self.limiter_over(redis.clone()), redis)
    }

    fn memory_store(&self) -> MemoryStore {
        let store = MemoryStore::new().capacity(self.memory_keys);
        store.max_bytes(self.memory_bytes)
    }

    fn limiter_over(&self, redis: Option<RedisStore>) -> Limiter {
        let limiter = match redis {
            Some(store) => match self.local_keys {
                Some(keys) => Limiter::new(store).local_capacity(keys.get()),
                None => Limiter::new(store),
            },
            None => Limiter::new(self.memory_store()),
        };
        let limiter = limiter.track_offenders(self.offenders.clone());
        let limiter = limiter.failure_mode(self.on_failure);
        if self.without_deny_cache {
            limiter.without_deny_cache()
        } else {
            limiter
        }
    }

    /// Key prefix in Redis, which other servers may share; `None` in memory.
    pub(crate) fn shared_prefix(&self) -> Option<&str> {
        self.shared_prefix.as_deref()
    }

    /// The failure mode of policies without one of their own.
    pub(crate) const fn failure_mode(&self) -> FailureMode {
        self.on_failure
    }

    /// The kind of store: `memory` or `redis`.
    pub const fn kind(&self) -> &'static str {
        match self.redis {
            Some(_) => "redis",
            None => "memory",
        }
    }
}

fn redis_config(settings: &Settings, url: &RedisUrl) -> Result<RedisConfig, InvalidConfig> {
    let mut redis = RedisConfig::new(&url.0).map_err(InvalidConfig::Redis)?;
    if let Some(prefix) = &settings.redis_prefix {
        redis = redis.prefix(prefix).map_err(InvalidConfig::Redis)?;
    }
    if let Some(budget) = settings.time_budget {
        redis = redis.timeout(budget.0);
    }
    tls::with_redis_certificates(settings, url, redis)
}

impl fmt::Display for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.on_failure {
            FailureMode::Open => "everything passes",
            FailureMode::Closed => "nothing passes",
            _ => "this process decides",
        };
        match &self.redis {
            Some((url, _)) => write!(f, "{url} (when it does not answer, {mode})"),
            None => f.write_str("memory (of this process; --redis URL shares budgets)"),
        }
    }
}

//! Settings: one name as a flag, in the environment and in the file.

use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use axum::http::HeaderName;
use clap::{Args, ValueEnum};
use ratelimit_core::FailureMode;
use ratelimit_http::{policy_file::slow_bucket_warnings, response::HeaderStyle};

#[cfg(feature = "envoy")]
use super::envoy_rules::EnvoyRules;
use super::{
    duration::{Delay, Grace, Span},
    envoy_settings::EnvoySettings,
    listen_addr::{ListenAddr, tcp_addr},
    log_filter::LogFilter,
    values::{
        ChainName, ConsoleMode, HostName, KeyPattern, NamedPolicy, Network, OffenderKeys, RedisUrl,
    },
    xds_settings::XdsSettings,
};
use crate::cli_error::CliError;

/// The settings of the server. An unset field means the default.
#[derive(Args, Clone, Debug, Default)]
pub struct Settings {
    /// A file with more settings, in TOML or YAML by its ending; read again when it changes and on SIGHUP
    #[arg(long, env = "RATELIMIT_CONFIG", value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Where to listen [default: 127.0.0.1:8080]
    #[arg(long, help_heading = "Listeners", env = "RATELIMIT_LISTEN", value_parser = tcp_addr, value_name = "ADDR")]
    pub(super) listen: Option<SocketAddr>,

    /// Where to listen for metrics, info and admin calls; --listen then serves only checks [default: --listen]
    #[arg(long, help_heading = "Listeners", env = "RATELIMIT_ADMIN_LISTEN", value_parser = tcp_addr, value_name = "ADDR")]
    pub(super) admin_listen: Option<SocketAddr>,

    /// The certificate chain (PEM) of the server; it then serves TLS only, and reads the file again when it changes
    #[arg(
        long,
        help_heading = "Listeners",
        env = "RATELIMIT_TLS_CERT",
        value_name = "FILE"
    )]
    pub(super) tls_cert: Option<PathBuf>,

    /// The private key (PEM) of --tls-cert
    #[arg(
        long,
        help_heading = "Listeners",
        env = "RATELIMIT_TLS_KEY",
        value_name = "FILE"
    )]
    pub(super) tls_key: Option<PathBuf>,

    /// Asks clients of --listen for a certificate that one of these (PEM) has signed; --admin-listen never asks
    #[arg(
        long,
        help_heading = "Listeners",
        hide_short_help = true,
        env = "RATELIMIT_TLS_CLIENT_CA",
        value_name = "FILE"
    )]
    pub(super) tls_client_ca: Option<PathBuf>,

    /// A name that callers may use in Host, besides IP addresses and localhost; repeatable
    #[arg(
        long,
        help_heading = "Listeners",
        env = "RATELIMIT_ALLOWED_HOST",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub(super) allowed_host: Vec<HostName>,

    /// A named policy, as in "login=5/min; 20/h"; repeatable, and joined by commas in the environment
    #[arg(
        long,
        help_heading = "Policies",
        env = "RATELIMIT_POLICY",
        value_name = "NAME=LIMITS",
        value_delimiter = ','
    )]
    pub(super) policy: Vec<NamedPolicy>,

    /// Refuses checks that name neither a policy nor an algorithm [default: true if policies are configured]
    #[arg(long, help_heading = "Policies", env = "RATELIMIT_REQUIRE_POLICY", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(super) require_policy: Option<bool>,

    /// A regular expression that keys must match as a whole [default: any key]
    #[arg(
        long,
        help_heading = "Policies",
        hide_short_help = true,
        env = "RATELIMIT_KEY_PATTERN",
        value_name = "REGEX"
    )]
    pub(super) key_pattern: Option<KeyPattern>,

    /// The Redis that all instances share, as in `redis://host:6379` or `rediss://host:6380` [default: none, budgets in memory]
    #[arg(
        long, help_heading = "Budgets",
        env = "RATELIMIT_REDIS",
        value_parser = RedisUrl::unchecked,
        value_name = "URL",
        hide_env_values = true
    )]
    pub(super) redis: Option<RedisUrl>,

    /// The failure mode when Redis does not answer [default: local]
    #[arg(
        long,
        help_heading = "Budgets",
        env = "RATELIMIT_ON_FAILURE",
        value_name = "MODE"
    )]
    pub(super) on_failure: Option<OnFailure>,

    /// How long Redis may take to decide [default: 100ms]
    #[arg(
        long,
        help_heading = "Budgets",
        hide_short_help = true,
        env = "RATELIMIT_TIME_BUDGET",
        value_name = "TIME"
    )]
    pub(super) time_budget: Option<Span>,

    /// How long the server is not ready at the start while Redis does not answer; with `never`, until it does [default: 10s]
    #[arg(
        long,
        help_heading = "Budgets",
        hide_short_help = true,
        env = "RATELIMIT_READINESS_GRACE",
        value_name = "TIME"
    )]
    pub(super) readiness_grace: Option<Grace>,

    /// The prefix of every key in Redis [default: `rate_limiter`]
    #[arg(
        long,
        help_heading = "Budgets",
        hide_short_help = true,
        env = "RATELIMIT_REDIS_PREFIX",
        value_name = "NAME"
    )]
    pub(super) redis_prefix: Option<String>,

    /// The root certificate (PEM) that signs the certificate of a rediss:// server [default: those of the system]
    #[arg(
        long,
        help_heading = "Budgets",
        hide_short_help = true,
        env = "RATELIMIT_REDIS_CA",
        value_name = "FILE"
    )]
    pub(super) redis_ca: Option<PathBuf>,

    /// The client certificate (PEM) for a rediss:// server that asks for one
    #[arg(
        long,
        help_heading = "Budgets",
        hide_short_help = true,
        env = "RATELIMIT_REDIS_CERT",
        value_name = "FILE"
    )]
    pub(super) redis_cert: Option<PathBuf>,

    /// The private key (PEM) of --redis-cert
    #[arg(
        long,
        help_heading = "Budgets",
        hide_short_help = true,
        env = "RATELIMIT_REDIS_KEY",
        value_name = "FILE"
    )]
    pub(super) redis_key: Option<PathBuf>,

    /// Asks Redis about every check, also when it denied the same a moment ago
    #[arg(long, help_heading = "Budgets", hide_short_help = true, env = "RATELIMIT_NO_DENY_CACHE", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(super) no_deny_cache: Option<bool>,

    /// How many keys the local fallback keeps while Redis does not answer [default: 65536]
    #[arg(
        long,
        help_heading = "Budgets",
        hide_short_help = true,
        env = "RATELIMIT_LOCAL_KEYS",
        value_name = "N"
    )]
    pub(super) local_keys: Option<NonZeroUsize>,

    /// How many keys are kept in memory without Redis [default: 1000000]
    #[arg(
        long,
        help_heading = "Budgets",
        hide_short_help = true,
        env = "RATELIMIT_MEMORY_KEYS",
        value_name = "N"
    )]
    pub(super) memory_keys: Option<NonZeroUsize>,

    /// How many bytes the keys in memory may take, as estimated [default: 1073741824]
    #[arg(
        long,
        help_heading = "Budgets",
        hide_short_help = true,
        env = "RATELIMIT_MEMORY_BYTES",
        value_name = "BYTES"
    )]
    pub(super) memory_bytes: Option<NonZeroUsize>,

    /// A proxy or network of proxies that may name the client; repeatable
    #[arg(
        long,
        help_heading = "Proxies",
        env = "RATELIMIT_TRUSTED",
        value_name = "CIDR",
        value_delimiter = ','
    )]
    pub(super) trusted: Vec<Network>,

    /// Lets every peer name the client: right only where nothing but proxies can connect
    #[arg(long, help_heading = "Proxies", hide_short_help = true, env = "RATELIMIT_TRUST_EVERYONE", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(super) trust_everyone: Option<bool>,

    /// Takes that element of the chain, counted from the right, in place of --trusted: every peer is a proxy
    #[arg(
        long,
        help_heading = "Proxies",
        hide_short_help = true,
        env = "RATELIMIT_HOPS",
        value_name = "N"
    )]
    pub(super) hops: Option<usize>,

    /// How many trusted elements of the chain are walked at most [default: 32]
    #[arg(
        long,
        help_heading = "Proxies",
        hide_short_help = true,
        env = "RATELIMIT_MAX_HOPS",
        value_name = "N"
    )]
    pub(super) max_hops: Option<usize>,

    /// The header in which proxies name the client [default: x-forwarded-for]
    #[arg(
        long,
        help_heading = "Proxies",
        hide_short_help = true,
        env = "RATELIMIT_CHAIN_HEADER",
        value_name = "NAME"
    )]
    pub(super) chain_header: Option<ChainName>,

    /// Never reads X-Real-IP
    #[arg(long, help_heading = "Proxies", hide_short_help = true, env = "RATELIMIT_NO_REAL_IP", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(super) no_real_ip: Option<bool>,

    /// The header in which trusted proxies send the path of the original request to forward-auth [default: none]
    #[arg(
        long,
        help_heading = "Proxies",
        env = "RATELIMIT_PATH_HEADER",
        value_name = "NAME"
    )]
    pub(super) path_header: Option<HeaderName>,

    /// How many leading bits tell IPv6 clients apart, 32 to 128 [default: 64]
    #[arg(
        long,
        help_heading = "Proxies",
        hide_short_help = true,
        env = "RATELIMIT_IPV6_PREFIX",
        value_name = "N"
    )]
    pub(super) ipv6_prefix: Option<u8>,

    /// The file with the token that reset, refund, settle, explain and offenders ask for
    #[arg(
        long,
        help_heading = "Operators",
        env = "RATELIMIT_ADMIN_TOKEN_FILE",
        value_name = "FILE"
    )]
    pub(super) admin_token_file: Option<PathBuf>,

    /// Lets callers on this machine reset, refund, settle, explain and see offenders without a token; only on loopback
    #[arg(long, help_heading = "Operators", hide_short_help = true, env = "RATELIMIT_ADMIN_WITHOUT_TOKEN", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(super) admin_without_token: Option<bool>,

    /// The page for operators below /console/ [default: read where there is admin access, else off]
    #[arg(
        long,
        help_heading = "Operators",
        env = "RATELIMIT_CONSOLE",
        value_name = "MODE"
    )]
    pub(super) console: Option<ConsoleMode>,

    /// How offenders shows keys [default: digest]
    #[arg(
        long,
        help_heading = "Operators",
        hide_short_help = true,
        env = "RATELIMIT_OFFENDER_KEYS",
        value_name = "HOW"
    )]
    pub(super) offender_keys: Option<OffenderKeys>,

    /// The header fields of answers [default: x-ratelimit]
    #[arg(
        long,
        help_heading = "Responses and bounds",
        hide_short_help = true,
        env = "RATELIMIT_HEADERS",
        value_name = "STYLE"
    )]
    pub(super) headers: Option<Headers>,

    /// How long a request may take, its body included [default: 10s]
    #[arg(
        long,
        help_heading = "Responses and bounds",
        hide_short_help = true,
        env = "RATELIMIT_REQUEST_TIMEOUT",
        value_name = "TIME"
    )]
    pub(super) request_timeout: Option<Span>,

    /// How long a client may take to send a request's head, or be idle [default: 30s]
    #[arg(
        long,
        help_heading = "Responses and bounds",
        hide_short_help = true,
        env = "RATELIMIT_HEADER_TIMEOUT",
        value_name = "TIME"
    )]
    pub(super) header_timeout: Option<Span>,

    /// The longest body of a request, in bytes [default: 1048576]
    #[arg(
        long,
        help_heading = "Responses and bounds",
        hide_short_help = true,
        env = "RATELIMIT_MAX_BODY",
        value_name = "BYTES"
    )]
    pub(super) max_body: Option<usize>,

    /// How many connections may be open at once [default: 10000]
    #[arg(
        long,
        help_heading = "Responses and bounds",
        hide_short_help = true,
        env = "RATELIMIT_MAX_CONNECTIONS",
        value_name = "N"
    )]
    pub(super) max_connections: Option<NonZeroUsize>,

    /// How long connections are still accepted after SIGTERM, while readiness fails [default: 5s; 0 on a terminal]
    #[arg(
        long,
        help_heading = "Responses and bounds",
        hide_short_help = true,
        env = "RATELIMIT_DRAIN_DELAY",
        value_name = "TIME"
    )]
    pub(super) drain_delay: Option<Delay>,

    /// How long open connections may take to end after the drain delay [default: 20s]
    #[arg(
        long,
        help_heading = "Responses and bounds",
        hide_short_help = true,
        env = "RATELIMIT_SHUTDOWN_TIMEOUT",
        value_name = "TIME"
    )]
    pub(super) shutdown_timeout: Option<Span>,

    /// Which log lines are written, as in `info` or `warn,ratelimit_server=debug` [default: info]
    #[arg(
        long,
        help_heading = "Logs and metrics",
        env = "RATELIMIT_LOG",
        value_name = "FILTER"
    )]
    pub(super) log: Option<LogFilter>,

    /// How log lines look [default: text]
    #[arg(
        long,
        help_heading = "Logs and metrics",
        env = "RATELIMIT_LOG_FORMAT",
        value_name = "FORMAT"
    )]
    pub(super) log_format: Option<LogFormat>,

    /// Log lines show the keys of denied checks, and not their fingerprints
    #[arg(long, help_heading = "Logs and metrics", hide_short_help = true, env = "RATELIMIT_LOG_KEYS", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(super) log_keys: Option<bool>,

    /// Logs the number of denials and the most denied keys of a policy at most that often, while it denies; 0 is never [default: 1min]
    #[arg(
        long,
        help_heading = "Logs and metrics",
        hide_short_help = true,
        env = "RATELIMIT_LOG_OFFENDERS",
        value_name = "TIME"
    )]
    pub(super) log_offenders: Option<Delay>,

    /// The label `application` of all metrics [default: distributed-rate-limiter]
    #[arg(
        long,
        help_heading = "Logs and metrics",
        hide_short_help = true,
        env = "RATELIMIT_APPLICATION",
        value_name = "NAME"
    )]
    pub(super) application: Option<String>,

    /// Where to listen for Envoy's rate limit service (gRPC): an address, or `unix:/PATH` [default: nowhere]
    #[arg(
        long,
        help_heading = "Envoy",
        env = "RATELIMIT_ENVOY_LISTEN",
        value_name = "ADDR"
    )]
    pub(super) envoy_listen: Option<ListenAddr>,

    /// The directory of Envoy rules, in the form of Envoy's own rate limit server; read again when a file changes
    #[arg(
        long,
        help_heading = "Envoy",
        env = "RATELIMIT_ENVOY_CONFIG",
        value_name = "DIR"
    )]
    pub(super) envoy_config: Option<PathBuf>,

    /// Lets several files of --envoy-config, or resources of --envoy-xds-server, have the same domain
    #[arg(long, help_heading = "Envoy", hide_short_help = true, env = "RATELIMIT_ENVOY_MERGE_DOMAINS", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(super) envoy_merge_domains: Option<bool>,

    /// Leaves out files of --envoy-config whose names begin with a dot
    #[arg(long, help_heading = "Envoy", hide_short_help = true, env = "RATELIMIT_ENVOY_IGNORE_DOT_FILES", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(super) envoy_ignore_dot_files: Option<bool>,

    /// Describes the request and the metadata of its rules in the dynamic metadata of answers to Envoy
    #[arg(long, help_heading = "Envoy", hide_short_help = true, env = "RATELIMIT_ENVOY_DYNAMIC_METADATA", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(super) envoy_dynamic_metadata: Option<bool>,

    #[command(flatten)]
    pub(super) envoy: EnvoySettings,

    #[command(flatten)]
    pub(super) xds: XdsSettings,

    #[cfg(feature = "envoy")]
    #[arg(skip)]
    pub(super) envoy_rules: Option<EnvoyRules>,
}

impl Settings {
    /// The configuration file.
    pub fn file(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Adds the policies of `RATELIMIT_POLICY` that no flag has: clap reads the variable only without a flag.
    ///
    /// # Errors
    ///
    /// Fails if a policy of the variable is invalid.
    pub fn with_policies_of_environment(mut self) -> Result<Settings, CliError> {
        let text = match std::env::var("RATELIMIT_POLICY") {
            Ok(text) if !self.policy.is_empty() => text,
            _ => return Ok(self),
        };
        let of_flags: Vec<String> = self
            .policy
            .iter()
            .map(|flag| flag.0.name().to_owned())
            .collect();
        for text in text.split(',') {
            let policy: NamedPolicy = text
                .parse()
                .map_err(|why| format!("RATELIMIT_POLICY: {text:?}: {why}"))?;
            if !of_flags.iter().any(|name| name == policy.0.name()) {
                self.policy.push(policy);
            }
        }
        Ok(self)
    }

    /// Capacity of the memory store, in keys.
    pub(super) fn memory_keys(&self) -> usize {
        self.memory_keys.map_or(1_000_000, NonZeroUsize::get)
    }

    /// Capacity of the memory store, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes.map_or(1 << 30, NonZeroUsize::get)
    }

    /// Files whose change reloads the configuration.
    pub(crate) fn watched_files(&self) -> impl Iterator<Item = &Path> {
        let files = [&self.config, &self.admin_token_file];
        files.into_iter().filter_map(Option::as_deref)
    }

    /// The warnings about policies of flags and the environment. A file has those about its own.
    pub(crate) fn policy_warnings(&self) -> Vec<String> {
        let policies = self.policy.iter().map(|policy| policy.0.policy());
        let warnings = policies.flat_map(|policy| {
            let warnings = slow_bucket_warnings(policy).into_iter();
            warnings.map(|warning| format!("policy {}: {warning}", policy.name()))
        });
        warnings.collect()
    }

    /// Names of the settings that differ from `running` and that only a restart applies.
    pub(crate) fn changes_needing_restart(&self, running: &Settings) -> Vec<String> {
        macro_rules! changed {
            ($($name:ident)*) => { [$( (stringify!($name), self.$name != running.$name) ),*] };
        }
        // The other settings are part of `ReloadableConfig`, which a reload replaces.
        let settings = changed!(listen admin_listen envoy_listen envoy_config
            envoy_merge_domains envoy_ignore_dot_files envoy_dynamic_metadata tls_cert tls_key tls_client_ca redis redis_ca redis_cert redis_key
            redis_prefix time_budget on_failure no_deny_cache local_keys memory_keys
            memory_bytes admin_without_token console headers application request_timeout header_timeout readiness_grace drain_delay
            shutdown_timeout max_body max_connections log log_format log_offenders offender_keys);
        let changed = settings.iter().filter(|(_, is_changed)| *is_changed);
        let changed = changed.map(|(name, _)| *name);
        let of_envoy = self.envoy.changes(&running.envoy);
        changed
            .chain(of_envoy)
            .chain(self.xds.changes(&running.xds))
            .map(|name| name.replace('_', "-"))
            .collect()
    }

    /// Fills unset fields from the settings of a file.
    pub(crate) fn or(mut self, file: Settings) -> Settings {
        macro_rules! fill_in {
            ($($name:ident)*) => { $( self.$name = self.$name.or(file.$name); )* };
        }
        fill_in!(listen admin_listen envoy_listen envoy_config envoy_merge_domains envoy_ignore_dot_files
            envoy_dynamic_metadata tls_cert tls_key tls_client_ca redis redis_ca redis_cert redis_key redis_prefix
            time_budget on_failure no_deny_cache local_keys memory_keys memory_bytes
            require_policy trust_everyone chain_header path_header hops max_hops ipv6_prefix no_real_ip key_pattern
            admin_token_file admin_without_token console headers
            application request_timeout header_timeout readiness_grace drain_delay shutdown_timeout max_body max_connections
            log log_format log_keys log_offenders offender_keys);
        self.envoy = self.envoy.or(file.envoy);
        #[cfg(feature = "envoy")]
        fill_in!(envoy_rules);
        self.xds = self.xds.or(file.xds);
        if self.trusted.is_empty() {
            self.trusted = file.trusted;
        }
        if self.allowed_host.is_empty() {
            self.allowed_host = file.allowed_host;
        }
        let mut policies = file.policy;
        policies.append(&mut self.policy);
        self.policy = policies;
        self
    }
}

/// The failure mode when Redis does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFailure {
    /// This process, with the same limits
    Local,
    /// Nothing: everything passes
    Open,
    /// Nothing: nothing passes
    Closed,
}

impl From<OnFailure> for FailureMode {
    fn from(mode: OnFailure) -> FailureMode {
        match mode {
            OnFailure::Local => FailureMode::Local,
            OnFailure::Open => FailureMode::Open,
            OnFailure::Closed => FailureMode::Closed,
        }
    }
}

/// The style of rate-limit headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Headers {
    /// X-RateLimit-Limit, -Remaining and -Reset, the last in Unix seconds
    XRatelimit,
    /// The same names, with the seconds to wait in -Reset
    XRatelimitDelta,
    /// RateLimit-Limit, -Remaining and -Reset
    Ratelimit,
    /// `RateLimit` and `RateLimit-Policy` of the IETF draft
    Ietf,
    /// None
    None,
}

impl From<Headers> for HeaderStyle {
    fn from(headers: Headers) -> HeaderStyle {
        match headers {
            Headers::XRatelimit => HeaderStyle::XRateLimit,
            Headers::XRatelimitDelta => HeaderStyle::XRateLimitDelta,
            Headers::Ratelimit => HeaderStyle::RateLimit,
            Headers::Ietf => HeaderStyle::Ietf,
            Headers::None => HeaderStyle::None,
        }
    }
}

/// The log format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text each
    #[default]
    Text,
    /// One JSON object each
    Json,
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches as _};

    use super::*;

    /// Settings that a reload applies.
    const RELOADED: &[&str] = &[
        "policy",
        "require_policy",
        "trusted",
        "trust_everyone",
        "chain_header",
        "path_header",
        "hops",
        "max_hops",
        "ipv6_prefix",
        "no_real_ip",
        "key_pattern",
        "admin_token_file",
        "allowed_host",
        "log_keys",
        // The name of the file comes from a flag, which does not change.
        "config",
    ];

    #[test]
    fn a_change_of_every_other_setting_needs_a_restart() {
        let samples = [
            "true",
            "127.0.0.1:1",
            "redis://a",
            "http://a",
            "7s",
            "local",
            "write",
            "info",
            "ietf",
            "json",
            "shown",
            "7",
            "/metrics",
            "0.5",
            "A,B,C",
            "envoy.example",
        ];
        let command = || Settings::augment_args(Command::new("server"));
        let names: Vec<String> = command()
            .get_arguments()
            .map(|argument| argument.get_id().to_string())
            .collect();
        for name in names
            .iter()
            .filter(|name| !RELOADED.contains(&name.as_str()))
        {
            let flag = name.replace('_', "-");
            let changed = samples.iter().find_map(|sample| {
                let line = ["server", &format!("--{flag}={sample}")].map(str::to_owned);
                let matches = command().try_get_matches_from(line).ok()?;
                Settings::from_arg_matches(&matches).ok()
            });
            let changed = changed.unwrap_or_else(|| panic!("no sample for {flag}"));
            assert_eq!(
                changed.changes_needing_restart(&Settings::default()),
                [flag]
            );
        }
    }
}

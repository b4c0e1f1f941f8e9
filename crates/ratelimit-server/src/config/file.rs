//! The configuration file.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use ratelimit_core::{MemoryStore, RedisConfig};
use ratelimit_http::{
    key::KeyKinds,
    policy_file::{
        self, Diagnostic, DiagnosticCode, Diagnostics, Entry, Field, InvalidPolicyFile, Node, Value,
    },
};

#[cfg(feature = "envoy")]
use super::envoy_rules::EnvoyRules;
use super::{
    admin_token::AdminToken,
    envoy_fields::ENVOY_FIELDS,
    invalid::InvalidConfig,
    listen_addr::tcp_addr,
    proxies,
    proxy_fields::PROXY_FIELDS,
    settings::Settings,
    values::{NamedPolicy, WHOLE_NUMBER, canonical, choice},
    xds_fields::XDS_FIELDS,
};
use crate::cli_error::CliError;

/// The fields of the file; each has the name of its flag. [`policy_file::read_policies`] reads the fields of a
/// policy.
const FIELDS: &[Field<Settings>] = &[
    Field::new("listen", |to, node, found| {
        to.listen = node.parse_with(DiagnosticCode::BadValue, tcp_addr, found);
    }),
    Field::new("admin-listen", |to, node, found| {
        to.admin_listen = node.parse_with(DiagnosticCode::BadValue, tcp_addr, found);
    }),
    Field::new("envoy-listen", |to, node, found| {
        to.envoy_listen = node.parsed(found);
    }),
    Field::new("envoy-config", |to, node, found| {
        to.envoy_config = node.text(found).map(PathBuf::from);
    }),
    Field::new("envoy-merge-domains", |to, node, found| {
        to.envoy_merge_domains = node.boolean(found);
    }),
    Field::new("envoy-ignore-dot-files", |to, node, found| {
        to.envoy_ignore_dot_files = node.boolean(found);
    }),
    Field::new("envoy-dynamic-metadata", |to, node, found| {
        to.envoy_dynamic_metadata = node.boolean(found);
    }),
    #[cfg(feature = "envoy")]
    Field::new("envoy", |to, node, found| {
        let (path, rules) = (PathBuf::new(), ratelimit_envoy::read_rules(node, found));
        to.envoy_rules = (!rules.is_empty()).then_some(EnvoyRules { path, rules });
    }),
    Field::new("redis", |to, node, found| to.redis = node.parsed(found)),
    Field::new("redis-ca", |to, node, found| {
        to.redis_ca = node.text(found).map(PathBuf::from);
    }),
    Field::new("redis-cert", |to, node, found| {
        to.redis_cert = node.text(found).map(PathBuf::from);
    }),
    Field::new("redis-key", |to, node, found| {
        to.redis_key = node.text(found).map(PathBuf::from);
    }),
    Field::new("tls-cert", |to, node, found| {
        to.tls_cert = node.text(found).map(PathBuf::from);
    }),
    Field::new("tls-key", |to, node, found| {
        to.tls_key = node.text(found).map(PathBuf::from);
    }),
    Field::new("tls-client-ca", |to, node, found| {
        to.tls_client_ca = node.text(found).map(PathBuf::from);
    }),
    Field::new("redis-prefix", |to, node, found| {
        to.redis_prefix = node.parse_with(DiagnosticCode::BadValue, redis_prefix, found);
    }),
    Field::new("time-budget", |to, node, found| {
        to.time_budget = node.parsed(found);
    }),
    Field::new("on-failure", |to, node, found| {
        to.on_failure = node.parse_with(DiagnosticCode::UnknownFailureMode, choice, found);
    }),
    Field::new("no-deny-cache", |to, node, found| {
        to.no_deny_cache = node.boolean(found);
    }),
    Field::new("local-keys", |to, node, found| {
        to.local_keys = at_least_1(node, found);
    }),
    Field::new("memory-keys", |to, node, found| {
        to.memory_keys = at_least_1(node, found);
    }),
    Field::new("memory-bytes", |to, node, found| {
        to.memory_bytes = at_least_1(node, found);
    }),
    Field::new("policy", |to, node, found| {
        let kinds = KeyKinds::tagged("key").or(KeyKinds::tagged("ip"));
        let policies = policy_file::read_policies(node, canonical, &kinds, found);
        to.policy = policies.into_iter().map(NamedPolicy).collect();
    }),
    Field::new("require-policy", |to, node, found| {
        to.require_policy = node.boolean(found);
    }),
    Field::new("key-pattern", |to, node, found| {
        to.key_pattern = node.parsed(found);
    }),
    Field::new("admin-token-file", |to, node, found| {
        to.admin_token_file = node.text(found).map(PathBuf::from);
    }),
    Field::new("admin-without-token", |to, node, found| {
        to.admin_without_token = node.boolean(found);
    }),
    Field::new("allowed-host", |to, node, found| {
        let names = node.list(found).unwrap_or_default().iter();
        to.allowed_host = names.filter_map(|name| name.parsed(found)).collect();
    }),
    Field::new("console", |to, node, found| {
        to.console = node.parse_with(DiagnosticCode::BadValue, choice, found);
    }),
    Field::new("headers", |to, node, found| {
        to.headers = node.parse_with(DiagnosticCode::BadValue, choice, found);
    }),
    Field::new("application", |to, node, found| {
        to.application = node.text(found).map(str::to_owned);
    }),
    Field::new("request-timeout", |to, node, found| {
        to.request_timeout = node.parsed(found);
    }),
    Field::new("header-timeout", |to, node, found| {
        to.header_timeout = node.parsed(found);
    }),
    Field::new("drain-delay", |to, node, found| {
        to.drain_delay = node.parsed(found);
    }),
    Field::new("readiness-grace", |to, node, found| {
        to.readiness_grace = node.parsed(found);
    }),
    Field::new("shutdown-timeout", |to, node, found| {
        to.shutdown_timeout = node.parsed(found);
    }),
    Field::new("max-body", |to, node, found| {
        to.max_body = node.integer(WHOLE_NUMBER, found);
    }),
    Field::new("max-connections", |to, node, found| {
        to.max_connections = at_least_1(node, found);
    }),
    Field::new("log", |to, node, found| {
        to.log = node.parsed(found);
    }),
    Field::new("log-format", |to, node, found| {
        to.log_format = node.parse_with(DiagnosticCode::BadValue, choice, found);
    }),
    Field::new("log-keys", |to, node, found| {
        to.log_keys = node.boolean(found);
    }),
    Field::new("log-offenders", |to, node, found| {
        to.log_offenders = node.parsed(found);
    }),
    Field::new("offender-keys", |to, node, found| {
        to.offender_keys = node.parse_with(DiagnosticCode::BadValue, choice, found);
    }),
];

/// A valid configuration file.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    pub(crate) settings: Settings,
    pub(crate) warnings: Vec<Diagnostic>,
    /// The line of each field.
    pub(crate) lines: BTreeMap<String, usize>,
}

impl ConfigFile {
    pub(crate) fn read(path: &Path) -> Result<ConfigFile, InvalidConfig> {
        let mut findings = Diagnostics::new();
        let root = policy_file::read(path, &mut findings);
        let root = root.map_err(|source| InvalidConfig::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        let file = ConfigFile::of(root.as_ref(), path, &mut findings);
        file.find_bad_token(&mut findings);
        file.accepted(path, findings)
    }

    /// Reads the text of a file. No other file is read: neither the token nor certificates.
    #[cfg(feature = "console")]
    pub(crate) fn parse(
        text: &str,
        format: policy_file::Format,
    ) -> Result<ConfigFile, InvalidConfig> {
        let (path, mut findings) = (Path::new(""), Diagnostics::new());
        let root = policy_file::parse(text, format, &mut findings);
        let file = ConfigFile::of(root.as_ref(), path, &mut findings);
        file.accepted(path, findings)
    }

    fn of(root: Option<&Node>, path: &Path, findings: &mut Diagnostics) -> ConfigFile {
        let settings = settings(root, findings);
        #[cfg(feature = "envoy")]
        let settings = settings.with_envoy_file(path);
        #[cfg(not(feature = "envoy"))]
        let _ = path;
        let entries = match root.map(|root| &root.value) {
            Some(Value::Table(entries)) => &entries[..],
            _ => &[],
        };
        let lines = entries.iter().map(|entry| (entry.name.clone(), entry.line));
        ConfigFile {
            settings,
            warnings: Vec::new(),
            lines: lines.collect(),
        }
    }

    fn find_bad_token(&self, findings: &mut Diagnostics) {
        let path = self.settings.admin_token_file.as_deref();
        if let Some(Err(why)) = path.map(AdminToken::read) {
            let line = self.lines.get("admin-token-file").copied();
            let message = CliError::from(why).to_string();
            findings.add(DiagnosticCode::BadValue, line.unwrap_or(1), message);
        }
    }

    fn accepted(self, path: &Path, findings: Diagnostics) -> Result<ConfigFile, InvalidConfig> {
        let is_refused = findings.has_errors();
        let findings = findings.sorted();
        if is_refused {
            return Err(InvalidConfig::File {
                path: path.to_owned(),
                why: InvalidPolicyFile::new(findings),
            });
        }
        Ok(ConfigFile {
            warnings: findings,
            ..self
        })
    }
}

fn settings(root: Option<&Node>, findings: &mut Diagnostics) -> Settings {
    let mut settings = Settings::default();
    if let Some(entries) = root.and_then(|root| root.table(findings)) {
        let fields = [FIELDS, PROXY_FIELDS, ENVOY_FIELDS, XDS_FIELDS].concat();
        policy_file::read_table(&mut settings, entries, &fields, findings);
        find_fields_of_layers(entries, findings);
        find_conflicts(entries, &settings, findings);
        find_exposed(entries, &settings, findings);
        find_long_logs(entries, &settings, findings);
    }
    settings
}

/// Reports fields of policies that only layers honour: the server sees neither bodies nor responses.
fn find_fields_of_layers(entries: &[Entry], findings: &mut Diagnostics) {
    let policies = entries.iter().filter(|entry| entry.name == "policy");
    let fields = policies.flat_map(members).flat_map(members);
    for field in fields {
        let instead = match (&*field.name, &field.node.value) {
            ("charge_on", _) => "refund a check by its receipt",
            ("settle", _) => "settle a check by its receipt",
            ("cost", Value::Text(_)) => "send the cost as permits",
            _ => continue,
        };
        let message = format!(
            "the server does not see the request or the response, so {} has no effect: {instead}",
            field.name
        );
        findings.add(DiagnosticCode::IgnoredField, field.line, message);
    }
}

/// The entries of a table; none for other values.
fn members(entry: &Entry) -> &[Entry] {
    match &entry.node.value {
        Value::Table(entries) => entries,
        _ => &[],
    }
}

/// Reports the settings about proxies that contradict each other within the file.
fn find_conflicts(entries: &[Entry], settings: &Settings, findings: &mut Diagnostics) {
    if let Err(conflict) = proxies::check_exclusions(settings)
        && let Some(line) = line_of(entries, conflict.setting)
    {
        let code = DiagnosticCode::ConflictingFields;
        findings.add(code, line, conflict.to_string());
    }
}

fn find_exposed(entries: &[Entry], settings: &Settings, findings: &mut Diagnostics) {
    let is_exposed = |ip: std::net::IpAddr| !ip.to_canonical().is_loopback();
    let is_exposed = settings.listen.is_some_and(|at| is_exposed(at.ip()));
    let is_exposed = is_exposed && settings.admin_listen.is_none();
    let has_token = line_of(entries, "admin-token-file").is_some();
    if let (Some(line), true, false) = (line_of(entries, "listen"), is_exposed, has_token) {
        let message = "listens beyond this machine without an admin token: admin calls are off";
        findings.add(DiagnosticCode::NoAdminToken, line, message);
    }
}

fn find_long_logs(entries: &[Entry], settings: &Settings, findings: &mut Diagnostics) {
    let sizes = settings.policy.iter().map(|policy| {
        let bytes = MemoryStore::max_bytes_of(policy.0.policy());
        (bytes, policy.0.name())
    });
    let Some((each, name)) = sizes.max() else {
        return;
    };
    let (keys, bytes) = (settings.memory_keys(), settings.memory_bytes());
    if settings.redis.is_some() || keys.saturating_mul(each) <= bytes {
        return;
    }
    let fields = ["memory-bytes", "memory-keys", "policy"];
    let line = fields.iter().find_map(|name| line_of(entries, name));
    let message = format!(
        "{keys} keys with full logs of policy {name} take {} bytes, and keys are evicted beyond {bytes}",
        keys.saturating_mul(each)
    );
    findings.add(DiagnosticCode::LogsExceedMemory, line.unwrap_or(1), message);
}

fn line_of(entries: &[Entry], name: &str) -> Option<usize> {
    let entry = entries.iter().find(|entry| entry.name == name);
    entry.map(|entry| entry.line)
}

fn at_least_1(node: &Node, findings: &mut Diagnostics) -> Option<NonZeroUsize> {
    let expected = "a whole number of at least 1";
    let number = node.integer(expected, findings)?;
    let positive = NonZeroUsize::new(number);
    if positive.is_none() {
        findings.add(
            DiagnosticCode::BadValue,
            node.line,
            format!("expected {expected}, not 0"),
        );
    }
    positive
}

fn redis_prefix(text: &str) -> Result<String, CliError> {
    RedisConfig::new("redis://localhost")?.prefix(text)?;
    Ok(text.to_owned())
}

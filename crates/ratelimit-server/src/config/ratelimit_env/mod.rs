//! The variables of Envoy's own rate limit server, read as settings of this one.
//!
//! - `variables.rs`: every variable, and the setting or the behaviour that stands in its place.
//! - `values.rs`: booleans, durations and addresses as that server writes them.
//! - `redis_url.rs`: the address of Redis.
//! - `runtime_directory.rs`: the directory of the rules.

mod redis_url;
mod runtime_directory;
mod values;
mod variables;

use std::{
    env::{self, VarError},
    fmt,
    path::PathBuf,
};

use axum::http::HeaderName;

use self::{
    redis_url::{has_credentials, redis_url},
    values::{boolean, duration, log_level, prometheus_addr},
    variables::{SWITCHES, Use, VARIABLES},
};
use super::{
    duration::Span,
    envoy_settings::LimitHeaderNames,
    invalid::InvalidConfig,
    listen_addr::ListenAddr,
    settings::{LogFormat, Settings},
    values::RedisUrl,
    xds_settings::XdsSettings,
};

/// The setting that turns the reading of the variables on.
const SWITCH: &str = "envoy-ratelimit-env";

/// The values of `CONFIG_TYPE`: rules in files, and rules over xDS.
const FILE: &str = "FILE";
const XDS: &str = "GRPC_XDS_SOTW";

/// The variables that name the directory of the rules.
const RUNTIME_DIRECTORY: [&str; 3] = [
    "RUNTIME_ROOT",
    "RUNTIME_SUBDIRECTORY",
    "RUNTIME_APPDIRECTORY",
];

/// A variable that is not read as a setting, and what stands in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnvironmentNote {
    variable: &'static str,
    text: String,
    /// Whether something is missing that the variable asks for.
    pub(crate) is_warning: bool,
}

impl fmt::Display for EnvironmentNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.variable, self.text)
    }
}

impl Settings {
    /// Reads the variables by default if the program has the name of Envoy's rate limit server.
    #[must_use]
    pub fn called_as(mut self, program: &std::path::Path) -> Settings {
        let is_ratelimit = program.file_name().is_some_and(|name| name == "ratelimit");
        if is_ratelimit && cfg!(feature = "envoy") {
            let switch = &mut self.envoy.envoy_ratelimit_env;
            *switch = switch.or(Some(true));
        }
        self
    }

    /// Fills unset settings from the variables of Envoy's rate limit server, if these or the settings of the file say so.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig::Environment`] for a value that is invalid, or that this server does not honour although it would change
    /// which requests pass.
    pub(crate) fn with_ratelimit_env(
        self,
        file: &Settings,
    ) -> Result<(Settings, Vec<EnvironmentNote>), InvalidConfig> {
        let switch = self.envoy.envoy_ratelimit_env;
        if switch.or(file.envoy.envoy_ratelimit_env) != Some(true) {
            return Ok((self, Vec::new()));
        }
        let is_not_text = |name: &str| matches!(env::var(name), Err(VarError::NotUnicode(_)));
        if let Some((variable, _)) = VARIABLES.iter().find(|(name, _)| is_not_text(name)) {
            return Err(refuse(variable, "expected UTF-8"));
        }
        let variables = Variables(|name: &str| env::var(name).ok());
        let mut notes = variables.notes(&self);
        let read = variables.settings(&self, file)?;
        if read.redis.is_none() && self.redis.is_none() && file.redis.is_none() {
            notes.push(EnvironmentNote {
                variable: "REDIS_URL",
                text: "it is not set: budgets are in the memory of this process".to_owned(),
                is_warning: true,
            });
        }
        Ok((self.or(read), notes))
    }
}

/// The variables of a process, by their names.
struct Variables<F>(F);

impl<F: Fn(&str) -> Option<String>> Variables<F> {
    /// The value of a variable; an empty one counts as unset.
    fn get(&self, name: &'static str) -> Option<String> {
        debug_assert!(
            VARIABLES.iter().any(|(known, _)| *known == name),
            "{name} is not listed"
        );
        self.raw(name).filter(|value| !value.is_empty())
    }

    /// The value of a variable, which may be empty.
    fn raw(&self, name: &'static str) -> Option<String> {
        (self.0)(name)
    }

    fn is_set(&self, name: &'static str) -> bool {
        self.get(name).is_some()
    }

    fn or(&self, name: &'static str, default: &str) -> String {
        self.get(name).unwrap_or_else(|| default.to_owned())
    }

    fn parsed<T>(
        &self,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, InvalidConfig> {
        let value = self.get(name).map(|value| parse(&value));
        value.transpose().map_err(|message| refuse(name, message))
    }

    fn is_true(&self, name: &'static str) -> Result<bool, InvalidConfig> {
        Ok(self.parsed(name, boolean)? == Some(true))
    }

    fn path(&self, name: &'static str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from)
    }

    /// The notes about all variables that are set, and warnings about those that a setting of `own` overrules.
    fn notes(&self, own: &Settings) -> Vec<EnvironmentNote> {
        let overruling = own.changes_needing_restart(&Settings::default());
        let note = |(variable, used): &(&'static str, Use)| {
            let value = self.get(variable)?;
            let (text, is_warning) = match *used {
                Use::Setting(setting) => {
                    let reason = self.reason_without_effect(variable, setting, &overruling)?;
                    (format!("it has no effect{reason}"), true)
                }
                Use::Needless(why) => (why.to_owned(), false),
                // A variable that turns something off asks for nothing.
                Use::Missing(_) if boolean(&value) == Ok(false) => return None,
                Use::Missing(why) => (why.to_owned(), true),
            };
            Some(EnvironmentNote {
                variable,
                text,
                is_warning,
            })
        };
        VARIABLES.iter().filter_map(note).collect()
    }

    /// The reason why a variable that is read has no effect, if there is one.
    fn reason_without_effect(
        &self,
        variable: &'static str,
        setting: &str,
        overruling: &[String],
    ) -> Option<String> {
        let overrules = |own: &str| overruling.iter().any(|name| name == own);
        if overrules(setting) {
            return Some(format!(", because {setting} is set"));
        }
        let source = self.or("CONFIG_TYPE", FILE);
        let is_of_files = variable.starts_with("RUNTIME_");
        if is_of_files && overrules("envoy-xds-server") {
            return Some(", because envoy-xds-server is set".to_owned());
        }
        let is_of_xds = variable != "CONFIG_TYPE" && setting.starts_with("envoy-xds-");
        if (is_of_files && source == XDS) || (is_of_xds && source != XDS) {
            return Some(format!(" with CONFIG_TYPE={source}"));
        }
        let is_sentinel = || {
            let kind = self.or("REDIS_TYPE", "SINGLE");
            kind.eq_ignore_ascii_case("SENTINEL")
        };
        match variable {
            "GRPC_HOST" | "GRPC_PORT" if self.is_set("GRPC_UDS") => {
                Some(", because GRPC_UDS is set".to_owned())
            }
            "REDIS_SENTINEL_AUTH" if !is_sentinel() => {
                Some(" without REDIS_TYPE=SENTINEL".to_owned())
            }
            "REDIS_AUTH" if has_credentials(&self.or("REDIS_URL", "")) => {
                Some(", because REDIS_URL has credentials".to_owned())
            }
            _ => self
                .missing_switch(variable)
                .map(|switch| format!(" without {switch}=true")),
        }
    }

    /// The variable that has to be true for another one to have an effect, and is not.
    fn missing_switch(&self, variable: &'static str) -> Option<&'static str> {
        let mut switches = SWITCHES.iter();
        // A variable that turns something off asks for nothing.
        let value = self.get(variable)?;
        if boolean(&value) == Ok(false) {
            return None;
        }
        let (switch, _) = switches.find(|(_, names)| names.contains(&variable))?;
        let is_on = self
            .get(switch)
            .is_some_and(|value| boolean(&value) == Ok(true));
        (!is_on).then_some(*switch)
    }

    /// The settings of the variables. Addresses and files that neither a variable nor `own` nor `file` has are those of
    /// Envoy's rate limit server.
    fn settings(&self, own: &Settings, file: &Settings) -> Result<Settings, InvalidConfig> {
        self.refuse_unsupported()?;
        let is_any_set =
            |names: &[&'static str]| names.iter().copied().any(|name| self.is_set(name));
        let mut settings = Settings {
            listen: (file.listen.is_none() || is_any_set(&["HOST", "PORT"]))
                .then(|| self.addr(("HOST", "0.0.0.0"), ("PORT", "8080")))
                .transpose()?,
            envoy_listen: (file.envoy_listen.is_none()
                || is_any_set(&["GRPC_UDS", "GRPC_HOST", "GRPC_PORT"]))
            .then(|| self.envoy_listen())
            .transpose()?,
            envoy_merge_domains: self.parsed("MERGE_DOMAIN_CONFIG", boolean)?,
            envoy_dynamic_metadata: self.parsed("RESPONSE_DYNAMIC_METADATA", boolean)?,
            redis: redis_url(self)?.map(RedisUrl),
            redis_prefix: self.get("CACHE_KEY_PREFIX"),
            time_budget: self.parsed("REDIS_TIMEOUT", duration)?.map(Span),
            log: self.parsed("LOG_LEVEL", log_level)?,
            log_format: self.parsed("LOG_FORMAT", |text| match &*text.to_lowercase() {
                "json" => Ok(LogFormat::Json),
                "text" => Ok(LogFormat::Text),
                _ => Err(format!("expected json or text, not {text:?}")),
            })?,
            ..Settings::default()
        };
        if self.or("CONFIG_TYPE", FILE) == XDS {
            settings.xds = self.xds()?;
        } else if own.xds.envoy_xds_server.is_none() {
            let has_source = file.envoy_config.is_some() || file.xds.envoy_xds_server.is_some();
            if !has_source || is_any_set(&RUNTIME_DIRECTORY) {
                settings.envoy_config = Some(self.directory()?);
            }
            settings.envoy_ignore_dot_files = self.parsed("RUNTIME_IGNOREDOTFILES", boolean)?;
        }
        if self.is_true("REDIS_TLS")? {
            settings.redis_ca = self.path("REDIS_TLS_CACERT");
            settings.redis_cert = self.path("REDIS_TLS_CLIENT_CERT");
            settings.redis_key = self.path("REDIS_TLS_CLIENT_KEY");
        }
        let is_counting = file.envoy.envoy_ratelimit_metrics;
        let own = &mut settings.envoy;
        own.envoy_ratelimit_metrics = is_counting.or(Some(true));
        own.envoy_near_limit_ratio =
            self.parsed("NEAR_LIMIT_RATIO", super::envoy_settings::ratio)?;
        own.envoy_shadow = self.parsed("SHADOW_MODE", boolean)?;
        own.envoy_quota = self.parsed("QUOTA_MODE", boolean)?;
        if self.is_true("USE_PROMETHEUS")? {
            let listen = self.parsed("PROMETHEUS_ADDR", prometheus_addr)?;
            own.envoy_metrics_listen = Some(listen.unwrap_or(([0, 0, 0, 0], 9090).into()));
            own.envoy_metrics_path = self.parsed("PROMETHEUS_PATH", str::parse)?;
        }
        if self.is_true("LIMIT_RESPONSE_HEADERS_ENABLED")? {
            own.envoy_response_headers = Some(LimitHeaderNames([
                self.header("LIMIT_LIMIT_HEADER", "RateLimit-Limit")?,
                self.header("LIMIT_REMAINING_HEADER", "RateLimit-Remaining")?,
                self.header("LIMIT_RESET_HEADER", "RateLimit-Reset")?,
            ]));
        }
        if self.is_true("GRPC_SERVER_USE_TLS")? {
            if self.get("GRPC_SERVER_TLS_CERT").is_none() {
                let message = "it is not set, and GRPC_SERVER_USE_TLS is true";
                return Err(refuse("GRPC_SERVER_TLS_CERT", message));
            }
            own.envoy_tls_cert = self.path("GRPC_SERVER_TLS_CERT");
            own.envoy_tls_key = self.path("GRPC_SERVER_TLS_KEY");
            own.envoy_tls_client_ca = self.path("GRPC_CLIENT_TLS_CACERT");
            own.envoy_tls_client_san = self.parsed("GRPC_CLIENT_TLS_SAN", str::parse)?;
        }
        Ok(settings)
    }

    /// Refuses values that would change which requests pass, or how, and that this server does not honour.
    fn refuse_unsupported(&self) -> Result<(), InvalidConfig> {
        let backend = self.or("BACKEND_TYPE", "redis");
        if backend != "redis" {
            let message = format!("the backend {backend:?} is not supported: use redis");
            return Err(refuse("BACKEND_TYPE", message));
        }
        let source = self.or("CONFIG_TYPE", FILE);
        if source != FILE && source != XDS {
            let message = format!("expected {FILE} or {XDS}, not {source:?}");
            return Err(refuse("CONFIG_TYPE", message));
        }
        let skips_name = self.is_true("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION")?;
        if skips_name && self.is_true("REDIS_TLS")? {
            let message = "the name in the certificate of Redis is always checked";
            return Err(refuse("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", message));
        }
        Ok(())
    }

    fn addr(
        &self,
        (host, any): (&'static str, &str),
        (port, default): (&'static str, &str),
    ) -> Result<std::net::SocketAddr, InvalidConfig> {
        let ip = values::host(&self.or(host, any)).map_err(|why| refuse(host, why))?;
        let number = values::port(&self.or(port, default)).map_err(|why| refuse(port, why))?;
        Ok((ip, number).into())
    }

    fn header(&self, name: &'static str, default: &str) -> Result<String, InvalidConfig> {
        let header = self.or(name, default);
        match header.parse::<HeaderName>() {
            Ok(_) => Ok(header),
            Err(_) => Err(refuse(
                name,
                format!("expected the name of a header field, not {header:?}"),
            )),
        }
    }

    fn envoy_listen(&self) -> Result<ListenAddr, InvalidConfig> {
        match self.get("GRPC_UDS") {
            Some(path) => format!("unix:{path}")
                .parse()
                .map_err(|message| refuse("GRPC_UDS", message)),
            None => self
                .addr(("GRPC_HOST", "0.0.0.0"), ("GRPC_PORT", "8081"))
                .map(ListenAddr::Tcp),
        }
    }

    /// The xDS server, with the defaults of Envoy's rate limit server.
    fn xds(&self) -> Result<XdsSettings, InvalidConfig> {
        let variable = "CONFIG_GRPC_XDS_SERVER_URL";
        let is_tls = self.is_true("CONFIG_GRPC_XDS_SERVER_USE_TLS")?;
        let scheme = if is_tls { "https" } else { "http" };
        let url = format!("{scheme}://{}", self.or(variable, "localhost:18000"));
        let server = url.parse().map_err(|why: &str| refuse(variable, why))?;
        let mut xds = XdsSettings {
            envoy_xds_server: Some(server),
            envoy_xds_node_id: Some(self.or("CONFIG_GRPC_XDS_NODE_ID", "default")),
            ..XdsSettings::default()
        };
        if is_tls {
            xds.envoy_xds_ca = self.path("CONFIG_GRPC_XDS_SERVER_TLS_CACERT");
            xds.envoy_xds_cert = self.path("CONFIG_GRPC_XDS_CLIENT_TLS_CERT");
            xds.envoy_xds_key = self.path("CONFIG_GRPC_XDS_CLIENT_TLS_KEY");
            xds.envoy_xds_server_name = self.get("CONFIG_GRPC_XDS_SERVER_TLS_SAN");
        }
        Ok(xds)
    }
}

fn refuse(variable: &'static str, message: impl fmt::Display) -> InvalidConfig {
    InvalidConfig::Environment {
        variable,
        message: format!("{message} ({SWITCH})"),
    }
}

#[cfg(test)]
mod tests;

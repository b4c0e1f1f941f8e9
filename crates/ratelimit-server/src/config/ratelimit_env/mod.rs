//! The variables of Envoy's own rate limit server, read as settings of this one.
//!
//! - `variables.rs`: every variable, and the setting or the behaviour that stands in its place.
//! - `values.rs`: booleans, durations and addresses as that server writes them.
//! - `redis_url.rs`: the address of Redis.

mod redis_url;
mod values;
mod variables;

use std::{env, fmt, path::PathBuf};

use self::{
    redis_url::redis_url,
    values::{addr, boolean, duration, log_level, prometheus_addr},
    variables::{SWITCHES, Use, VARIABLES},
};
use super::{
    duration::Span,
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
        let variables = Variables(|name: &str| env::var(name).ok());
        let mut notes = variables.notes(&self);
        let read = variables.settings()?;
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
        (self.0)(name).filter(|value| !value.is_empty())
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
                Use::Setting(setting) if overruling.iter().any(|own| own == setting) => {
                    (format!("it has no effect, because {setting} is set"), true)
                }
                Use::Setting(setting) if self.is_for_other_source(variable, setting) => {
                    let source = self.or("CONFIG_TYPE", FILE);
                    (format!("it has no effect with CONFIG_TYPE={source}"), true)
                }
                Use::Setting(_) => {
                    let switch = self.missing_switch(variable)?;
                    (format!("it has no effect without {switch}=true"), true)
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

    /// Whether a variable is about files and the rules come over xDS, or the other way round.
    fn is_for_other_source(&self, variable: &str, setting: &str) -> bool {
        if self.or("CONFIG_TYPE", FILE) == XDS {
            variable.starts_with("RUNTIME_")
        } else {
            variable != "CONFIG_TYPE" && setting.starts_with("envoy-xds-")
        }
    }

    /// The variable that has to be true for another one to have an effect, and is not.
    fn missing_switch(&self, variable: &str) -> Option<&'static str> {
        let mut switches = SWITCHES.iter();
        let (switch, _) = switches.find(|(_, names)| names.contains(&variable))?;
        let is_on = self
            .get(switch)
            .is_some_and(|value| boolean(&value) == Ok(true));
        (!is_on).then_some(*switch)
    }

    /// The settings of the variables, with the defaults of Envoy's rate limit server for addresses and files.
    fn settings(&self) -> Result<Settings, InvalidConfig> {
        self.refuse_unsupported()?;
        let mut settings = Settings {
            listen: Some(self.addr(("HOST", "0.0.0.0"), ("PORT", "8080"))?),
            envoy_listen: Some(self.envoy_listen()?),
            envoy_merge_domains: self.parsed("MERGE_DOMAIN_CONFIG", boolean)?,
            envoy_dynamic_metadata: self.parsed("RESPONSE_DYNAMIC_METADATA", boolean)?,
            redis: redis_url(self)?.map(RedisUrl),
            redis_prefix: self.get("CACHE_KEY_PREFIX"),
            time_budget: self.parsed("REDIS_TIMEOUT", duration)?.map(Span),
            log: self.parsed("LOG_LEVEL", log_level)?,
            log_format: self.parsed("LOG_FORMAT", |text| match text {
                "json" => Ok(LogFormat::Json),
                "text" => Ok(LogFormat::Text),
                _ => Err(format!("expected json or text, not {text:?}")),
            })?,
            ..Settings::default()
        };
        if self.or("CONFIG_TYPE", FILE) == XDS {
            settings.xds = self.xds()?;
        } else {
            settings.envoy_config = Some(self.directory());
            settings.envoy_ignore_dot_files = self.parsed("RUNTIME_IGNOREDOTFILES", boolean)?;
        }
        if self.is_true("REDIS_TLS")? {
            settings.redis_ca = self.path("REDIS_TLS_CACERT");
            settings.redis_cert = self.path("REDIS_TLS_CLIENT_CERT");
            settings.redis_key = self.path("REDIS_TLS_CLIENT_KEY");
        }
        let own = &mut settings.envoy;
        own.envoy_ratelimit_metrics = Some(true);
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
            let names = [
                self.or("LIMIT_LIMIT_HEADER", "RateLimit-Limit"),
                self.or("LIMIT_REMAINING_HEADER", "RateLimit-Remaining"),
                self.or("LIMIT_RESET_HEADER", "RateLimit-Reset"),
            ];
            let names = names.join(",").parse();
            let names = names.map_err(|why| refuse("LIMIT_LIMIT_HEADER", why))?;
            own.envoy_response_headers = Some(names);
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
        if self.is_true("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION")? {
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
        let (host_text, port_text) = (self.or(host, any), self.or(port, default));
        addr(&host_text, &port_text).map_err(|message| refuse(host, message))
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

    fn directory(&self) -> PathBuf {
        let root = PathBuf::from(self.or("RUNTIME_ROOT", "/srv/runtime_data/current"));
        let parts = [
            self.or("RUNTIME_SUBDIRECTORY", ""),
            self.or("RUNTIME_APPDIRECTORY", "config"),
        ];
        // A part that begins with a slash stays below the root, as in the other server.
        let parts = parts.iter().map(|part| part.trim_matches('/'));
        parts
            .filter(|part| !part.is_empty())
            .fold(root, |path, part| path.join(part))
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

//! Settings of Envoy's listener for those who come from Envoy's own rate limit server.

use std::{net::SocketAddr, path::PathBuf, str::FromStr};

use axum::http::HeaderName;
use clap::Args;
use rustls::pki_types::ServerName;

use super::listen_addr::tcp_addr;

/// Settings of Envoy's listener beside its address and its rules. An unset field means the default.
#[derive(Args, Clone, Debug, Default)]
#[expect(
    clippy::struct_field_names,
    reason = "a field has the name of its flag"
)]
pub(super) struct EnvoySettings {
    /// Serves gRPC reflection on --envoy-listen
    #[arg(long, help_heading = "Envoy", hide_short_help = true, env = "RATELIMIT_ENVOY_REFLECTION", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(super) envoy_reflection: Option<bool>,

    /// Counts the metrics of Envoy's own rate limit server as well, `ratelimit_service_...`
    #[arg(long, help_heading = "Envoy", hide_short_help = true, env = "RATELIMIT_ENVOY_RATELIMIT_METRICS", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(super) envoy_ratelimit_metrics: Option<bool>,

    /// The share of a limit from which on --envoy-ratelimit-metrics counts hits as near it [default: 0.8]
    #[arg(
        long, help_heading = "Envoy", hide_short_help = true,
        env = "RATELIMIT_ENVOY_NEAR_LIMIT_RATIO",
        value_name = "RATIO",
        value_parser = ratio
    )]
    pub(super) envoy_near_limit_ratio: Option<String>,

    /// Where to listen for Prometheus alone, in clear text [default: nowhere]
    #[arg(long, help_heading = "Envoy", hide_short_help = true, env = "RATELIMIT_ENVOY_METRICS_LISTEN", value_parser = tcp_addr, value_name = "ADDR")]
    pub(super) envoy_metrics_listen: Option<SocketAddr>,

    /// The path of the metrics on --envoy-metrics-listen [default: /metrics]
    #[arg(
        long,
        help_heading = "Envoy",
        hide_short_help = true,
        env = "RATELIMIT_ENVOY_METRICS_PATH",
        value_name = "PATH"
    )]
    pub(super) envoy_metrics_path: Option<MetricsPath>,

    /// Adds these three header fields to answers to Envoy: the limit, what remains, and the seconds to its reset
    #[arg(
        long,
        help_heading = "Envoy",
        hide_short_help = true,
        env = "RATELIMIT_ENVOY_RESPONSE_HEADERS",
        value_name = "NAME,NAME,NAME"
    )]
    pub(super) envoy_response_headers: Option<LimitHeaderNames>,

    /// Lets every request of Envoy pass, and counts those that would be denied
    #[arg(long, help_heading = "Envoy", hide_short_help = true, env = "RATELIMIT_ENVOY_SHADOW", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(super) envoy_shadow: Option<bool>,

    /// Puts all rules into quota mode: a request passes if one of its descriptors does
    #[arg(long, help_heading = "Envoy", hide_short_help = true, env = "RATELIMIT_ENVOY_QUOTA", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(super) envoy_quota: Option<bool>,

    /// The certificate chain (PEM) of --envoy-listen alone [default: that of --tls-cert]
    #[arg(
        long,
        help_heading = "Envoy",
        hide_short_help = true,
        env = "RATELIMIT_ENVOY_TLS_CERT",
        value_name = "FILE"
    )]
    pub(super) envoy_tls_cert: Option<PathBuf>,

    /// The private key (PEM) of --envoy-tls-cert
    #[arg(
        long,
        help_heading = "Envoy",
        hide_short_help = true,
        env = "RATELIMIT_ENVOY_TLS_KEY",
        value_name = "FILE"
    )]
    pub(super) envoy_tls_key: Option<PathBuf>,

    /// Asks Envoy for a certificate that one of these (PEM) has signed
    #[arg(
        long,
        help_heading = "Envoy",
        hide_short_help = true,
        env = "RATELIMIT_ENVOY_TLS_CLIENT_CA",
        value_name = "FILE"
    )]
    pub(super) envoy_tls_client_ca: Option<PathBuf>,

    /// The DNS name or address that the certificate of Envoy must have [default: any]
    #[arg(
        long,
        help_heading = "Envoy",
        hide_short_help = true,
        env = "RATELIMIT_ENVOY_TLS_CLIENT_SAN",
        value_name = "NAME"
    )]
    pub(super) envoy_tls_client_san: Option<SubjectName>,

    /// Reads the variables of Envoy's own rate limit server, such as `REDIS_URL` [default: true if the program is called ratelimit]
    #[arg(long, help_heading = "Envoy", hide_short_help = true, env = "RATELIMIT_ENVOY_RATELIMIT_ENV", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(super) envoy_ratelimit_env: Option<bool>,
}

/// Calls a macro with the names of all fields.
macro_rules! with_fields {
    ($call:ident) => {
        $call!(
            envoy_reflection
            envoy_ratelimit_metrics
            envoy_near_limit_ratio
            envoy_metrics_listen
            envoy_metrics_path
            envoy_response_headers
            envoy_shadow
            envoy_quota
            envoy_tls_cert
            envoy_tls_key
            envoy_tls_client_ca
            envoy_tls_client_san
            envoy_ratelimit_env
        )
    };
}

impl EnvoySettings {
    /// The names of the fields that differ.
    pub(super) fn changes(&self, other: &EnvoySettings) -> Vec<&'static str> {
        macro_rules! changed {
            ($($name:ident)*) => { [$( (stringify!($name), self.$name != other.$name) ),*] };
        }
        let fields = with_fields!(changed);
        let changed = fields.into_iter().filter(|(_, is_changed)| *is_changed);
        changed.map(|(name, _)| name).collect()
    }

    /// Fills unset fields from others.
    pub(super) fn or(mut self, other: EnvoySettings) -> EnvoySettings {
        macro_rules! fill_in {
            ($($name:ident)*) => { $( self.$name = self.$name.or(other.$name); )* };
        }
        with_fields!(fill_in);
        self
    }
}

/// The names of the header fields for a limit, the units that remain, and the seconds to the reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitHeaderNames(pub(crate) [String; 3]);

impl FromStr for LimitHeaderNames {
    type Err = String;

    fn from_str(text: &str) -> Result<LimitHeaderNames, String> {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        let is_valid = names.iter().all(|name| name.parse::<HeaderName>().is_ok());
        match <[String; 3]>::try_from(names) {
            Ok(names) if is_valid => Ok(LimitHeaderNames(names)),
            _ => Err(format!(
                "expected three header names such as RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset, not {text:?}"
            )),
        }
    }
}

/// The path of the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetricsPath(pub(crate) String);

impl FromStr for MetricsPath {
    type Err = String;

    fn from_str(text: &str) -> Result<MetricsPath, String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if text.starts_with('/') && text.bytes().all(is_plain) {
            Ok(MetricsPath(text.to_owned()))
        } else {
            Err(format!("expected a path such as /metrics, not {text:?}"))
        }
    }
}

/// A name that a certificate must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubjectName(pub(crate) ServerName<'static>);

impl FromStr for SubjectName {
    type Err = String;

    fn from_str(text: &str) -> Result<SubjectName, String> {
        let name = ServerName::try_from(text.to_owned());
        name.map(SubjectName)
            .map_err(|_| format!("expected a DNS name or an IP address, not {text:?}"))
    }
}

/// Checks a ratio and keeps its text, which is equal to itself.
pub(super) fn ratio(text: &str) -> Result<String, String> {
    #[cfg(feature = "envoy")]
    text.parse::<ratelimit_envoy::NearLimitRatio>()?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_values_are_refused() {
        assert!("A,B,C".parse::<LimitHeaderNames>().is_ok());
        for text in ["", "A,B", "A,B,C,D", "A,,C", "A,B C,D"] {
            assert!(text.parse::<LimitHeaderNames>().is_err(), "{text}");
        }
        assert!("/stats/prometheus".parse::<MetricsPath>().is_ok());
        for text in ["", "metrics", "/{path}", "/a b"] {
            assert!(text.parse::<MetricsPath>().is_err(), "{text}");
        }
        assert!("envoy.example".parse::<SubjectName>().is_ok());
        assert!("spiffe://cluster/ns".parse::<SubjectName>().is_err());
    }
}

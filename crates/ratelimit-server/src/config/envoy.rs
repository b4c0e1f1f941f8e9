//! Settings of the listener for Envoy.

#[cfg(feature = "envoy")]
use std::path::Path;
use std::{net::SocketAddr, path::PathBuf};

#[cfg(feature = "envoy")]
use ratelimit_envoy::{DirectoryOptions, NearLimitRatio, ResponseOptions, RulesBuilder};

#[cfg(feature = "envoy")]
use super::xds::XdsConfig;
use super::{
    envoy_settings::LimitHeaderNames,
    invalid::{ConflictingSettings, InvalidConfig},
    listen_addr::ListenAddr,
    settings::Settings,
    tls::TlsFiles,
};

/// The listener for Envoy, and its rules.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(feature = "envoy"),
    expect(
        dead_code,
        reason = "a server without the feature has no such listener"
    )
)]
pub(crate) struct EnvoyConfig {
    pub(crate) listen: ListenAddr,
    /// The certificate files of the listener, if it has its own.
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) directory: Option<PathBuf>,
    /// Where Prometheus alone is served, and its path.
    pub(crate) metrics_listen: Option<(SocketAddr, String)>,
    /// The names of the header fields that answers have.
    pub(crate) response_headers: Option<LimitHeaderNames>,
    /// Whether every request passes.
    pub(crate) is_shadow: bool,
    pub(crate) has_reflection: bool,
    #[cfg(feature = "envoy")]
    pub(crate) xds: Option<XdsConfig>,
    #[cfg(feature = "envoy")]
    pub(crate) options: RuleOptions,
    /// The ratio of the metrics of Envoy's rate limit server, if they are counted.
    #[cfg(feature = "envoy")]
    pub(crate) ratelimit_metrics: Option<NearLimitRatio>,
    #[cfg(feature = "envoy")]
    pub(crate) response: ResponseOptions,
}

/// How rules are read and applied.
#[cfg(feature = "envoy")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleOptions {
    pub(crate) directory: DirectoryOptions,
    has_value_metrics: bool,
    is_quota: bool,
}

#[cfg(feature = "envoy")]
impl RuleOptions {
    /// A builder without rules.
    pub(crate) fn builder(self) -> RulesBuilder {
        RulesBuilder::new()
            .merge_domains(self.directory.merge_domains)
            .value_metrics(self.has_value_metrics)
            .quota_mode(self.is_quota)
    }
}

impl EnvoyConfig {
    /// The listener of the settings, if there is one.
    pub(super) fn of(settings: &Settings) -> Result<Option<EnvoyConfig>, InvalidConfig> {
        let Some(listen) = settings.envoy_listen.clone() else {
            let of_xds = settings.xds.first_set();
            return match first(settings.needing_envoy_listen()).or(of_xds) {
                Some(setting) => Err(conflict(setting, "has no effect without envoy-listen")),
                None => Ok(None),
            };
        };
        let directory = settings.envoy_config.clone();
        let has_xds = settings.xds.envoy_xds_server.is_some();
        if directory.is_some() && has_xds {
            let why = "is not possible beside envoy-xds-server: remove one of them";
            return Err(conflict("envoy-config", why));
        }
        if !has_xds && let Some(setting) = settings.xds.first_beside_server() {
            return Err(conflict(setting, "has no effect without envoy-xds-server"));
        }
        if settings.envoy_merge_domains.is_some() && directory.is_none() && !has_xds {
            let why = "has no effect without envoy-config or envoy-xds-server";
            return Err(conflict("envoy-merge-domains", why));
        }
        if settings.envoy_ignore_dot_files.is_some() && directory.is_none() {
            let setting = "envoy-ignore-dot-files";
            return Err(conflict(setting, "has no effect without envoy-config"));
        }
        if directory.is_none() && !settings.has_envoy_rules() && !has_xds {
            let why = "needs envoy-config or rules in the file, [[envoy.rule]] or [[envoy.bucket]], or envoy-xds-server, as well";
            return Err(conflict("envoy-listen", why));
        }
        let own = &settings.envoy;
        let has_metrics = own.envoy_ratelimit_metrics == Some(true);
        if own.envoy_near_limit_ratio.is_some() && !has_metrics {
            let why = "has no effect without envoy-ratelimit-metrics";
            return Err(conflict("envoy-near-limit-ratio", why));
        }
        if own.envoy_metrics_path.is_some() && own.envoy_metrics_listen.is_none() {
            let why = "has no effect without envoy-metrics-listen";
            return Err(conflict("envoy-metrics-path", why));
        }
        if cfg!(not(feature = "envoy")) {
            return Err(conflict(
                "envoy-listen",
                "needs a server with the feature envoy",
            ));
        }
        let path = own.envoy_metrics_path.as_ref();
        let path = path.map_or("/metrics", |path| &path.0);
        Ok(Some(EnvoyConfig {
            listen,
            tls: TlsFiles::of_envoy(settings)?,
            directory,
            metrics_listen: own
                .envoy_metrics_listen
                .map(|listen| (listen, path.to_owned())),
            response_headers: own.envoy_response_headers.clone(),
            is_shadow: own.envoy_shadow == Some(true),
            has_reflection: own.envoy_reflection == Some(true),
            #[cfg(feature = "envoy")]
            options: settings.envoy_rule_options(),
            #[cfg(feature = "envoy")]
            xds: XdsConfig::of(&settings.xds)?,
            #[cfg(feature = "envoy")]
            ratelimit_metrics: has_metrics.then(|| settings.near_limit_ratio()),
            #[cfg(feature = "envoy")]
            response: ResponseOptions::default()
                .with_dynamic_metadata(settings.envoy_dynamic_metadata == Some(true)),
        }))
    }
}

/// The name of the first setting that is set.
fn first<const N: usize>(settings: [(&'static str, bool); N]) -> Option<&'static str> {
    let mut set = settings.into_iter().filter(|(_, is_set)| *is_set);
    set.next().map(|(setting, _)| setting)
}

impl Settings {
    /// The settings that have no effect without a listener for Envoy, and whether they are set.
    fn needing_envoy_listen(&self) -> [(&'static str, bool); 17] {
        let own = &self.envoy;
        [
            ("envoy-config", self.envoy_config.is_some()),
            ("envoy.rule", self.has_envoy_rules()),
            (
                "envoy-dynamic-metadata",
                self.envoy_dynamic_metadata.is_some(),
            ),
            ("envoy-merge-domains", self.envoy_merge_domains.is_some()),
            (
                "envoy-ignore-dot-files",
                self.envoy_ignore_dot_files.is_some(),
            ),
            ("envoy-reflection", own.envoy_reflection.is_some()),
            (
                "envoy-ratelimit-metrics",
                own.envoy_ratelimit_metrics.is_some(),
            ),
            (
                "envoy-near-limit-ratio",
                own.envoy_near_limit_ratio.is_some(),
            ),
            ("envoy-metrics-listen", own.envoy_metrics_listen.is_some()),
            ("envoy-metrics-path", own.envoy_metrics_path.is_some()),
            (
                "envoy-response-headers",
                own.envoy_response_headers.is_some(),
            ),
            ("envoy-shadow", own.envoy_shadow.is_some()),
            ("envoy-quota", own.envoy_quota.is_some()),
            ("envoy-tls-cert", own.envoy_tls_cert.is_some()),
            ("envoy-tls-key", own.envoy_tls_key.is_some()),
            ("envoy-tls-client-ca", own.envoy_tls_client_ca.is_some()),
            ("envoy-tls-client-san", own.envoy_tls_client_san.is_some()),
        ]
    }

    /// Whether the file has rules for Envoy.
    fn has_envoy_rules(&self) -> bool {
        #[cfg(feature = "envoy")]
        let has_rules = self.envoy_rules.is_some();
        #[cfg(not(feature = "envoy"))]
        let has_rules = false;
        has_rules
    }
}

#[cfg(feature = "envoy")]
impl Settings {
    /// Sets the file that the Envoy rules are in.
    pub(super) fn with_envoy_file(mut self, path: &Path) -> Settings {
        if let Some(rules) = &mut self.envoy_rules {
            path.clone_into(&mut rules.path);
        }
        self
    }

    /// The directory of Envoy rules.
    pub(crate) fn envoy_directory(&self) -> Option<&Path> {
        self.envoy_config.as_deref()
    }

    /// How Envoy rules are read and applied.
    pub(crate) fn envoy_rule_options(&self) -> RuleOptions {
        let mut directory = DirectoryOptions::default();
        directory.merge_domains = self.envoy_merge_domains == Some(true);
        directory.ignore_dot_files = self.envoy_ignore_dot_files == Some(true);
        RuleOptions {
            directory,
            has_value_metrics: self.envoy.envoy_ratelimit_metrics == Some(true),
            is_quota: self.envoy.envoy_quota == Some(true),
        }
    }

    /// The ratio of `near_limit`, which was checked when it was read.
    fn near_limit_ratio(&self) -> NearLimitRatio {
        let ratio = self.envoy.envoy_near_limit_ratio.as_deref();
        let ratio = ratio.and_then(|ratio| ratio.parse().ok());
        ratio.unwrap_or_default()
    }
}

fn conflict(setting: &'static str, why: &'static str) -> InvalidConfig {
    InvalidConfig::Conflict(ConflictingSettings { setting, why })
}

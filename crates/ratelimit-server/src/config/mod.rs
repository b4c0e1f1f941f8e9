//! Configuration: flags, environment and file, merged and validated.

mod admin_token;
mod client_name;
mod console;
mod duration;
mod environment;
mod envoy;
mod envoy_fields;
#[cfg(feature = "envoy")]
mod envoy_rules;
mod envoy_settings;
mod file;
mod file_policies;
mod invalid;
mod listen_addr;
mod listeners;
mod log_filter;
mod memory_or_redis;
#[cfg(feature = "console")]
mod new_files;
mod offenders;
mod policies;
mod proxies;
mod proxy_fields;
mod ratelimit_env;
#[cfg(feature = "console")]
mod reloadable;
mod resolved;
mod settings;
mod tls;
mod values;
#[cfg(feature = "envoy")]
mod xds;
mod xds_fields;
mod xds_settings;

#[cfg(feature = "envoy")]
pub(crate) use self::xds::XdsConfig;
pub(crate) use self::{
    admin_token::AdminToken,
    duration::Span,
    environment::unknown_variables,
    file::ConfigFile,
    file_policies::file_policies,
    listen_addr::ListenAddr,
    tls::{TlsConfigs, TlsContents, TlsFiles},
    values::{ConsoleMode, is_localhost},
};
#[cfg(feature = "envoy")]
pub(crate) use self::{
    envoy::{EnvoyConfig, RuleOptions},
    envoy_settings::LimitHeaderNames,
};
pub use self::{
    invalid::{ConflictingSettings, InvalidConfig},
    policies::Policies,
    resolved::{Bounds, Config, ReloadableConfig, StoreConfig},
    settings::{LogFormat, Settings},
};

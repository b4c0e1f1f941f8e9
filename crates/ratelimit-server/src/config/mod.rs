//! Configuration: flags, environment and file, merged and validated.

mod admin_token;
mod duration;
mod environment;
mod envoy;
#[cfg(feature = "envoy")]
mod envoy_rules;
mod file;
mod invalid;
mod listeners;
mod log_filter;
mod memory_or_redis;
mod policies;
mod proxies;
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
    envoy::EnvoyConfig,
    file::ConfigFile,
    tls::{TlsConfigs, TlsContents, TlsFiles},
};
pub use self::{
    invalid::{ConflictingSettings, InvalidConfig},
    policies::Policies,
    resolved::{Bounds, Config, Rules, StoreConfig},
    settings::{LogFormat, Settings},
};

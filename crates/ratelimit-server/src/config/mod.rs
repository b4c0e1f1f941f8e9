//! Configuration: flags, environment and file, merged and validated.

mod admin_token;
mod duration;
mod environment;
mod file;
mod invalid;
mod listeners;
mod log_filter;
mod policies;
mod proxies;
mod resolved;
mod settings;
mod tls;
mod values;

pub(crate) use self::{
    admin_token::AdminToken,
    duration::Span,
    environment::unknown_variables,
    file::ConfigFile,
    tls::{TlsConfigs, TlsContents, TlsFiles},
};
pub use self::{
    invalid::{ConflictingSettings, InvalidConfig},
    policies::Policies,
    resolved::{Bounds, Config, Rules, StoreConfig},
    settings::{LogFormat, Settings},
};

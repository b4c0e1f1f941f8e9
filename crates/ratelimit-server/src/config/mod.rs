//! Configuration: flags, environment and file, merged and validated.

mod admin_token;
mod duration;
mod file;
mod invalid;
mod policies;
mod resolved;
mod settings;
mod values;

pub(crate) use self::{admin_token::AdminToken, duration::Span, file::ConfigFile};
pub use self::{
    invalid::InvalidConfig,
    policies::Policies,
    resolved::{Bounds, Config, Rules, StoreConfig},
    settings::{LogFormat, Settings},
};

//! How the server is set up: flags, environment and file, checked and put together.

mod duration;
mod file;
mod invalid;
mod loaded;
mod policies;
mod settings;
mod values;

pub(crate) use self::{duration::Span, file::ConfigFile};
pub use self::{
    invalid::InvalidConfig,
    loaded::{Bounds, Config, Rules, StoreConfig},
    policies::Policies,
    settings::{LogFormat, Settings},
};

//! What a request counts by: extractors of keys, and how they are combined.

mod client;
mod combine;
mod error;
mod explicit;
mod extractor;
mod extractors;
mod named;
mod request;

pub(crate) use self::named::NamedKey;
pub use self::{
    client::ClientKey,
    combine::{And, Or, OrShared},
    error::KeyError,
    explicit::ExplicitKey,
    extractors::{ApiKey, CookieKey, HeaderKey, QueryKey},
    named::{ClientAddress, UnknownKeyName},
    request::{MethodKey, PathKey},
};

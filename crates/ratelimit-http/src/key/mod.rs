//! The keys by which requests are counted: extractors and their combinators.
//!
//! Each extractor has a method `extract_key` over a [`RequestHead`](crate::middleware::RequestHead).
//! The adapters implement their trait `KeyExtractor` with it, which also has `and`, `or` and
//! `or_shared`.
//!
//! | extractor | key |
//! |---|---|
//! | [`ClientKey`] | the client's address, or a key that the application chose |
//! | [`ApiKey`], [`CookieKey`] | a digest of a secret |
//! | [`HeaderKey`], [`QueryKey`] | a value that the request contains under a name; a digest of it if [`is_credential`] says so of the name |
//! | [`ExtensionKey`] | a value that a middleware put into the request's extensions |
//! | [`MethodKey`], [`PathKey`] | the method, a segment of the path |

mod client;
mod combine;
mod credential;
mod error;
mod explicit;
mod extension;
mod extractor;
mod extractors;
mod kinds;
mod named;
mod request;
mod rule_key;

#[cfg(any(feature = "toml", feature = "yaml"))]
pub(crate) use self::rule_key::without_secret;
pub use self::{
    client::ClientKey,
    combine::{And, Or, OrShared},
    credential::is_credential,
    error::KeyError,
    explicit::ExplicitKey,
    extension::ExtensionKey,
    extractors::{ApiKey, CookieKey, HeaderKey, QueryKey},
    kinds::KeyKinds,
    named::{ClientAddress, UnknownKeyName},
    request::{MethodKey, PathKey},
    rule_key::RuleKey,
};

//! Rate limiting of HTTP requests, without a framework.
//!
//! Everything here works on bytes and on small traits, so that adapters for frameworks with different
//! `http` crates share one implementation:
//!
//! - [`client_ip`]: the client's address behind trusted proxies,
//! - [`key`]: what a request counts by,
//! - [`policy`]: a [`Policy`](ratelimit_core::Policy) with what it says of requests,
//! - [`response`]: header fields and problem bodies,
//! - [`registry`]: policies by name, changed at run time,
//! - `policy_file` (features `toml`, `yaml`): policies in a file, with diagnostics,
//! - [`middleware`]: the shared core of the adapters.

pub mod client_ip;
#[doc(hidden)]
pub mod handler;
pub mod key;
pub mod metrics;
pub mod middleware;
pub mod policy;
#[cfg(any(feature = "toml", feature = "yaml"))]
pub mod policy_file;
pub mod registry;
pub mod response;
mod syntax;

pub use self::syntax::InvalidSyntax;

/// For the code that attributes expand to.
#[doc(hidden)]
pub mod private {
    pub use inventory;

    pub use crate::syntax::is_token;
}

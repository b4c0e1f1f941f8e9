//! Support of `#[rate_limit]`: the limit of a handler, declared policies, the global registry.
//!
//! The attribute expands to a static [`HandlerLimit`] and, if it names a policy, to a [`DeclaredPolicy`] that
//! the program collects at link time. A registry can thereby check at the start that no policy is missing.

mod global;
mod limit;

pub use self::{
    global::{
        DeclaredHandler, SetRegistryError, global_registry, policy_for_handler, set_global_registry,
    },
    limit::{CostOf, HandlerKey, HandlerLimit},
};
pub use crate::{
    middleware::global_limiter,
    registry::{DeclaredPolicy, MissingPolicies},
};

//! What `#[rate_limit]` expands to, and what it looks up.

mod declared;
mod global;
mod limit;

pub use self::{
    declared::{DeclaredPolicy, MissingPolicies},
    global::{
        AlreadySet, SetRegistryError, global_limiter, global_registry, policy_for_handler,
        set_global_limiter, set_global_registry,
    },
    limit::{CostOf, HandlerKey, HandlerLimit},
};

//! The implementation that the adapters for HTTP frameworks share. Applications do not need it.
//!
//! Frameworks have their own types for requests and header fields. An adapter describes them with two
//! traits, and every rule is written once over these traits:
//!
//! | trait | describes | used by |
//! |---|---|---|
//! | [`RequestHead`] | method, path, query, headers, peer and explicit key of a request | the key extractors, [`Config`] |
//! | [`Framework`] | the types of requests, responses and header maps | [`Config`], [`Rejection`], [`HeaderWriter`](crate::response::HeaderWriter) |
//!
//! # The steps of a request
//!
//! ```text
//!              Config::check
//!    Bypassed   Rejected   Admitted   Pending
//!       |          |          |          | Config::complete
//!       |          |          |<---------+-------> Rejected
//!       |          |          v
//!       |          |       delay of a shaping limit
//!       |          |          v
//!       +---------(---->  the service
//!                  |          v
//!                  |    Config::finish     settle by status and headers, write header fields
//!                  v          v
//!               response   body with its BodyGuard
//! ```
//!
//! 1. [`Config::check`] evaluates the head of the request. It rejects the request, lets it bypass the
//!    limit, or asks the limiter. A limiter in memory answers at once. If the tier of the request has to be
//!    looked up first, the adapter awaits it and calls `Config::check_resolved`.
//! 2. [`Config::complete`] takes the limiter's answer if it was pending. The adapter awaits the answer.
//! 3. The adapter waits for the delay, and calls the service.
//! 4. [`Config::finish`] settles the charge by the head of the response and writes the header fields. It
//!    returns a [`BodyGuard`] if something is held until the body ends.
//!
//! # Writing an adapter
//!
//! 1. Implement [`Framework`] for a unit struct and [`RequestHead`] for a type that borrows a request.
//! 2. Call the macro `key_extractor!` for the trait of key extractors.
//! 3. Define a layer with an `Arc<Config>` and a method `map_config`, and call the macro
//!    `builder_methods!` for its setters.
//! 4. Implement [`HasDefaults`] with a `static`, and call the macro `defaults_type!` for the defaults that all
//!    limits of a process share.
//! 5. Before the check, attach a [`BodyCounter`] to the body of a request if [`Config::counts_body`] is true.
//! 6. Drive the four steps in the future of the layer's service, and keep the [`BodyGuard`] in the
//!    type of its bodies.

mod admitted_request;
mod body_cost;
mod body_counter;
mod body_guard;
mod builder;
mod check;
mod config;
mod defaults;
mod key_error_log;
mod key_warnings;
mod latest_policy;
mod memory_warning;
mod named_keys;
mod pending;
mod policy_flags;
mod rejection;
#[cfg(feature = "tokio")]
mod tier_resolver;

#[cfg(feature = "tokio")]
pub use self::tier_resolver::{PendingTier, ResolvedTier, TierResolver};
pub use self::{
    admitted_request::AdmittedRequest,
    body_counter::{BodyCount, BodyCounter},
    body_guard::{BodyGuard, SlotGuard},
    check::CheckOutcome,
    config::{Config, DecisionSharing},
    defaults::{DefaultSettings, GlobalDefaults, HasDefaults, SetDefaultsError, global_limiter},
    key_warnings::log_unmatched_keys,
    pending::{CompletedCheck, PendingCheck},
    rejection::{Rejection, RejectionReason},
};
pub use crate::framework::{Framework, RequestHead};

//! Envoy's rate limit quota service: grants that are charged before they are sent.
//!
//! - `terms.rs`: [`GrantTerms`], when grants of a policy must end.
//! - `sizing.rs`: the demand of a bucket, and the size of a grant.
//! - `grant.rs`: the grants of a bucket, and what is left of them.
//! - `assignment.rs`: [`Assignment`] and its messages.
//! - `bucket.rs`: [`QuotaBucket`], the state of one bucket on one stream. It has no clock, socket or store.
//! - `holders.rs`: [`Holders`], the demand of all buckets of a server.
//! - `target.rs`: [`QuotaTarget`], the budget of a bucket, and the calls of its store.
//! - `holder.rs`: [`QuotaHolder`], a bucket with its budget and its receipts.

mod assignment;
mod bucket;
mod grant;
mod holder;
mod holders;
mod sizing;
mod target;
mod terms;

pub(crate) use self::terms::too_fine;
pub use self::{
    assignment::{Assignment, abandon},
    bucket::{AnswerTime, QuotaAction, QuotaBucket},
    grant::{GrantId, SettledGrant},
    holder::{PassState, QuotaHolder, QuotaTally, QuotaUpdate},
    holders::Holders,
    sizing::OtherDemand,
    target::QuotaTarget,
    terms::GrantTerms,
};

//! Envoy's rate limit quota service: grants that are charged before they are sent.
//!
//! - `terms.rs`: [`GrantTerms`], when grants of a policy must end.
//! - `sizing.rs`: the demand of a bucket, and the size of a grant.
//! - `grant.rs`: the grants of a bucket, and what is left of them.
//! - `assignment.rs`: [`Assignment`] and its messages.
//! - `bucket.rs`: [`QuotaBucket`], the state of one bucket on one stream. It has no clock, socket or store.
//! - `renewal.rs`: the next assignment of a bucket, from what it holds.
//! - `holders.rs`: [`Holders`], the demand of all buckets of a server.
//! - `target.rs`: [`QuotaTarget`], the budget of a bucket, and the calls of its store.
//! - `pass.rs`: [`PassState`], whether the store answers.
//! - `holder.rs`: [`QuotaHolder`], a bucket with its budget and its receipts.

mod assignment;
mod bucket;
mod grant;
mod holder;
mod holders;
mod pass;
mod renewal;
mod sizing;
mod target;
mod terms;

pub(crate) use self::terms::too_fine;
pub use self::{
    assignment::{Assignment, abandon},
    bucket::{AddedGrant, AnswerTime, QuotaAction, QuotaBucket, Renewal},
    grant::{GrantId, SettledGrant},
    holder::{QuotaHolder, QuotaTally, QuotaUpdate},
    holders::Holders,
    pass::PassState,
    sizing::OtherDemand,
    target::QuotaTarget,
    terms::GrantTerms,
};

//! What all adapters of HTTP frameworks share: for those who write one, and for nobody else.
//!
//! Frameworks keep requests and header fields in types of their own. An adapter tells the engine
//! how to read and write those, by three small traits, and every rule lives here:
//!
//! ```text
//! RequestHead    a request: method, path, query, header lines, peer, explicit key
//!      |             read by the key sources (ClientKey, ApiKey, ...) and the rules of Config
//! HeaderFields   a header map, with its names and values
//!      |             written by HeaderWriter and Rejection
//! Framework      both, and the type of an response
//!                    Config::check, Config::complete, Config::finish
//! ```
//!
//! A request takes three steps. [`Config::check`] says from its head alone whether it passes or is
//! refused, and else asks the limiter. [`Config::complete`] says what follows from an answer that was not
//! there at once. [`Config::finish`] settles by the head of the response, writes its fields, and leaves
//! what is [`BodyGuard`] until the body ends. Between the steps an adapter waits, and calls the service.

mod admission;
mod body_guard;
mod builder;
mod check;
mod config;
mod framework;
mod pending;
mod policy_flags;
mod rejection;

pub(crate) use self::config::KeyOf;
pub use self::{
    admission::Admission,
    body_guard::{BodyGuard, SlotGuard},
    check::CheckOutcome,
    config::{Config, DecisionSharing},
    framework::{Framework, RequestHead},
    pending::{CompletedCheck, PendingCheck},
    rejection::{Rejection, RejectionReason},
};

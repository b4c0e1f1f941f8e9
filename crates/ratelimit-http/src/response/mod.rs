//! Decisions as header fields and problem bodies.
//!
//! [`HeaderStyle`] chooses the header fields, [`HeaderWriter`] writes them into a response, and
//! [`ProblemDetails`] is the body of a rejected request. The functions work on bytes, so a server without a
//! framework can use them as well.

mod header_style;
mod header_writer;
mod problem;
mod report;
mod text;

pub use self::{
    header_style::{HeaderStyle, ratelimit_policy_value, retry_after_millis, retry_after_secs},
    header_writer::{HeaderWriter, is_refusal},
    problem::ProblemDetails,
    text::HeaderText,
};
pub(crate) use self::{
    header_writer::{GRPC_RETRY_PUSHBACK, number, retry_after},
    report::LimitReport,
    text::parse_number,
};

//! Decisions as header fields and problem bodies.

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
    text::Digits,
};

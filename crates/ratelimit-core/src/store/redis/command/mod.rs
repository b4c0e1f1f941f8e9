//! The messages that scripts take, and their replies.

pub(super) mod check;
pub(super) mod check_batch;
pub(super) mod check_bucket;
pub(super) mod number;
pub(super) mod reply;
pub(super) mod settle;

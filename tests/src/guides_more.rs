//! Guides whose examples are doctests of this crate.

#[doc = include_str!("../../docs/guides/custom-response.md")]
pub struct CustomResponse;

#[doc = include_str!("../../docs/guides/jobs.md")]
pub struct Jobs;

#[doc = include_str!("../../docs/guides/outgoing.md")]
pub struct Outgoing;

#[doc = include_str!("../../docs/guides/redis.md")]
pub struct Redis;

#[doc = include_str!("../../docs/guides/roll-out.md")]
pub struct RollOut;

#[doc = include_str!("../../docs/guides/wait.md")]
pub struct Wait;

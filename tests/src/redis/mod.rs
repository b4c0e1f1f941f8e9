//! A real Redis for tests: one that is given, one that is started here, or one in a container.
//!
//! In this order: `RATELIMIT_TEST_REDIS_URL`; a `redis-server` (or `valkey-server`, or what
//! `REDIS_SERVER_BIN` names) on a free port, which dies with this process; a container, also by
//! choice with `RATELIMIT_TEST_REDIS=docker`.
//!
//! [`TestRedis::deployed`] always starts servers here, and uses them as a documented user.

mod acl;
mod container;
mod process;
mod server;

pub use self::{
    acl::Deployment,
    process::RedisProcess,
    server::{TestRedis, as_asked, connected, is_plain_run},
};

//! A real Redis for tests: the server at `RATELIMIT_TEST_REDIS_URL`, or a `redis-server` (or `valkey-server`, or the binary
//! that `REDIS_SERVER_BIN` names), which is started on a free port and ends with this process.
//!
//! [`TestRedis::deployed`] always starts servers here, and uses them as a documented user.

mod acl;
mod process;
mod server;

pub use self::{
    acl::Deployment,
    process::RedisProcess,
    server::{TestRedis, as_asked, connected, is_plain_run},
};

//! Budgets in Redis: one script call decides a policy, whatever the number of its limits.

mod config;
mod keys;
mod link;
mod question;
mod script;
mod shared;

pub use self::{
    config::{InvalidRedisConfig, RedisConfig},
    shared::RedisStore,
};

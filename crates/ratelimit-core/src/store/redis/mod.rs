//! Budgets in Redis: one script call decides a policy, whatever the number of its limits.

mod access;
mod breaker;
mod cluster;
mod config;
mod connect;
mod existing;
mod keys;
mod link;
mod pace;
mod question;
mod script;
mod server_clock;
mod slot;
mod store;
mod target;
mod task;
mod trouble;

pub use self::{
    config::{InvalidRedisConfig, RedisConfig},
    store::RedisStore,
};

//! Budgets in Redis: one script call decides a policy, whatever the number of its limits.

mod batch;
mod call;
mod command;
mod config;
mod connection;
mod execute;
mod hash_slot;
mod keyspace;
mod script;
mod store;
mod unused;
mod url;

pub use self::{
    config::{InvalidRedisConfig, RedisConfig},
    store::RedisStore,
};

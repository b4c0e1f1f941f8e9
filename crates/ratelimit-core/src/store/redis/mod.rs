//! Budgets in Redis: one script call decides a policy, whatever the number of its limits.

mod access;
mod answer;
mod apart;
mod batch;
mod batcher;
mod breaker;
mod bucket;
mod call;
mod cluster;
mod config;
mod connect;
mod existing;
mod hitting;
mod keys;
mod lane;
mod link;
mod outage_log;
mod pace;
mod packed;
mod probe;
mod question;
mod said;
mod script;
mod server_clock;
mod settlement;
mod slot;
mod store;
mod target;
mod task;
mod trouble;
mod undoable;
mod unused;

pub use self::{
    config::{InvalidRedisConfig, RedisConfig},
    store::RedisStore,
};

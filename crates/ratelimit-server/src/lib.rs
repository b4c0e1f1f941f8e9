//! Rate limiting over REST, for services in any language.
//!
//! The binary `ratelimit-server` serves; as a library this is the same server without its sockets,
//! for tests and for embedding: an [`App`] made from a [`Config`], whose router answers.
//!
//! ```text
//! request ──> guard ──> question ──> Limiter ──> answer ──> response
//!            (time)   (policy, key)  (verdict)  (fields)
//! ```

mod access;
mod answer;
mod app;
mod caller;
mod chart;
mod check_config;
mod cli;
mod client_key;
mod config;
mod failure;
mod hmac;
mod logs;
mod metrics;
mod query;
mod question;
mod refusal;
mod reload;
mod routes;
mod screen;
mod seal;
mod serve;
mod simulate;

pub use self::{
    app::App,
    caller::Peer,
    check_config::CheckConfig,
    cli::{Cli, Command},
    client_key::ClientKey,
    config::{Bounds, Config, InvalidConfig, LogFormat, Policies, Rules, Settings, StoreConfig},
    failure::Failure,
    metrics::recorder,
    serve::{run, serve},
    simulate::Simulate,
};

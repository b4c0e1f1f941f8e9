//! Rate limiting over REST, for services in any language.
//!
//! The binary `ratelimit-server` is this library with a command line. Tests and embedders create an
//! [`App`] from a [`Config`] and call its router without a socket.
//!
//! ```text
//! request ──> guard ──> CheckRequest ──> Limiter ──> CheckResponse ──> response
//!            (time)   (policy, key)     (verdict)    (fields)
//! ```

mod access_log;
mod admin_auth;
mod api_error;
mod app;
mod audit;
mod browser_guard;
mod check_config;
mod check_keys;
mod check_request;
mod check_response;
mod cli;
mod cli_error;
mod client;
mod client_key;
mod config;
#[cfg(feature = "console")]
mod config_check;
#[cfg_attr(
    not(feature = "console"),
    allow(dead_code, reason = "the console reads all of it")
)]
mod config_state;
#[cfg(feature = "console")]
mod console;
#[cfg(feature = "envoy")]
mod envoy;
#[cfg_attr(
    not(feature = "console"),
    allow(dead_code, reason = "the console reads all of it")
)]
mod finding;
mod hangup;
mod health;
mod hex;
mod hmac;
mod json_body;
mod json_object;
mod json_response;
mod listener;
#[cfg(feature = "console")]
mod live_feed;
mod logging;
mod metrics;
mod micros;
mod missing_files;
mod policy_summary;
mod query;
mod receipt_token;
#[cfg_attr(
    not(feature = "console"),
    allow(dead_code, reason = "the console reads all of it")
)]
mod redact;
mod refusal_log;
mod reload;
#[cfg_attr(
    not(feature = "console"),
    allow(dead_code, reason = "the console reads all of it")
)]
mod reload_channel;
mod request_id;
mod room;
mod routes;
#[cfg(feature = "console")]
mod sampler;
mod serve;
#[cfg(feature = "console")]
mod session_cookie;
mod sign_in_limit;
mod simulate;
mod socket;
mod startup_banner;
mod svg;
mod tls;
mod trace_context;
mod unread_body;

pub use self::{
    app::App,
    check_config::CheckConfig,
    cli::{Cli, Command},
    cli_error::CliError,
    client::Peer,
    client_key::ClientKey,
    config::{
        Bounds, Config, ConflictingSettings, InvalidConfig, LogFormat, Policies, Rules, Settings,
        StoreConfig,
    },
    health::Health,
    listener::Listener,
    metrics::{MetricsHandle, MetricsRecorder, recorder},
    serve::{run, serve},
    simulate::Simulate,
};

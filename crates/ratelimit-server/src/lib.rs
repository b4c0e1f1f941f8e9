//! Rate limiting over REST, for services in any language.
//!
//! The binary `ratelimit-server` is this library with a command line. Tests and embedders create an
//! [`App`] from a [`Config`] and call its router without a socket.
//!
//! - [The routes without a socket](#the-routes-without-a-socket)
//! - [The path of a request](#the-path-of-a-request)
//! - [Features](#features)
//!
//! # The routes without a socket
//!
//! ```
//! use axum::{body::Body, http::Request};
//! use ratelimit_server::{App, Config, Settings, recorder};
//! use tower::ServiceExt as _;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!
//! let config = Config::load(&Settings::default())?;
//! let metrics = recorder(&config.application).handle();
//! let app = App::new(&config, config.store.limiter(), config.listen, metrics);
//!
//! let check = Request::get("/api/v1/rate-limit/check?key=user:123").body(Body::empty())?;
//! let response = app.router().oneshot(check).await?;
//! assert_eq!(response.headers()["x-ratelimit-remaining"], "99");
//! # Ok(())
//! # }
//! ```
//!
//! # The path of a request
//!
//! ```text
//! request ──> guard ──> CheckRequest ──> Limiter ──> CheckResponse ──> response
//!            (time)   (policy, key)     (verdict)    (fields)
//! ```
//!
//! # Features
//!
//! | feature | effect |
//! |---|---|
//! | `console` (default) | the page for operators below `/console/`, and its API |
//! | `envoy` (default) | the rate limit and quota services of Envoy over gRPC |
//! | `acceptance` | for tests of this repository only: their long runs |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod accept_backoff;
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
mod completions;
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
#[cfg_attr(
    not(feature = "envoy"),
    allow(dead_code, reason = "without Envoy there are no rules")
)]
mod envoy_policy;
mod file_read;
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
mod memory_budget;
mod metrics;
mod micros;
mod missing_files;
mod open_files;
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
mod response_progress;
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
    completions::Completions,
    config::{
        Bounds, Config, ConflictingSettings, InvalidConfig, LogFormat, Policies, ReloadableConfig,
        Settings, StoreConfig,
    },
    health::Health,
    listener::Listener,
    metrics::{MetricsHandle, MetricsRecorder, recorder},
    serve::{run, serve},
    simulate::Simulate,
};

/// Compiles and runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

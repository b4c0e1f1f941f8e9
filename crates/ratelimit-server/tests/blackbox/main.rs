//! The built binary from outside: over its sockets, its command line and its signals.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

mod admin;
mod attacks;
mod browser;
mod browser_headers;
mod chart;
mod client_key;
mod command_line;
mod completions;
mod console;
mod container;
mod envoy;
mod foresight;
mod grafana;
mod input;
mod keys;
mod lifecycle;
mod listeners;
mod manifests;
mod manual_server;
mod memory_cgroup;
mod metrics;
mod observability;
mod offenders;
mod openapi;
mod packaging;
mod page_blocks;
mod pictures;
mod policy_file;
mod prometheus;
mod proxies;
mod raw_http2;
mod receipts;
mod redis;
mod required_policy;
mod rest;
mod runbooks;
mod server;
mod session;
mod settings_matrix;
mod simulate;
mod strict_settings;
mod tls;

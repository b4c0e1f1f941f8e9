//! The built binary from outside: over its sockets, its command line and its signals.

mod admin;
mod client_key;
mod command_line;
mod input;
mod lifecycle;
mod metrics;
mod nginx;
mod redis;
mod rest;
mod server;
mod simulate;

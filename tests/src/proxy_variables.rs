//! The variables that make clients send their requests to a proxy.

use std::process::Command;

const VARIABLES: [&str; 6] = [
    "http_proxy",
    "HTTP_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
];

/// Removes them from the environment of a command, which then reaches this machine directly.
pub fn clear(command: &mut Command) -> &mut Command {
    for name in VARIABLES {
        command.env_remove(name);
    }
    command
}

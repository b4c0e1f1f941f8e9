//! The limit of open files, which bounds the number of connections.

use rlimit::Resource;

use crate::{config::Config, listener::MAX_ADMIN_CONNECTIONS};

/// File descriptors that are left for Redis, the xDS server, files that are read again, listeners and the log.
const RESERVED_FILES: u64 = 128;

/// Connections that are kept at least.
const MIN_CONNECTIONS: u64 = 8;

/// More descriptors than this are of no use, and some systems have no hard limit.
const MAX_FILES: u64 = 1 << 20;

/// Raises the soft limit of open files to the hard limit, and lowers `--max-connections` to what fits.
///
/// A client that uses up all descriptors would otherwise take away the connections of probes and to Redis.
pub(crate) fn fit_connections(config: &mut Config) {
    let limit = match raise_limit() {
        Ok(limit) => limit,
        Err(why) => {
            tracing::warn!("the limit of open files cannot be read: {why}");
            return;
        }
    };
    let listeners = 1 + u64::from(config.envoy.is_some());
    let small_listeners =
        u64::from(config.admin_listen.is_some()) + u64::from(config.metrics_listen().is_some());
    let wanted = config.bounds.connections;
    let fitting = fitting_connections(limit, listeners, small_listeners);
    if fitting < wanted {
        config.bounds.connections = fitting;
        tracing::warn!(
            open_files = limit,
            "--max-connections is {fitting} instead of {wanted}: the limit of open files (ulimit -n, LimitNOFILE) \
             allows no more"
        );
    }
}

/// The limit after it was raised.
fn raise_limit() -> std::io::Result<u64> {
    let (soft, hard) = Resource::NOFILE.get()?;
    let wanted = hard.min(MAX_FILES);
    if wanted <= soft {
        return Ok(soft);
    }
    if let Err(why) = Resource::NOFILE.set(wanted, hard) {
        tracing::warn!("the limit of open files stays at {soft}: {why}");
        return Ok(soft);
    }
    Ok(wanted)
}

/// The connections of each of the `listeners` of clients that fit a limit of open files.
fn fitting_connections(limit: u64, listeners: u64, small_listeners: u64) -> usize {
    let reserved = RESERVED_FILES + small_listeners * MAX_ADMIN_CONNECTIONS as u64;
    let each = limit.saturating_sub(reserved) / listeners;
    usize::try_from(each.max(MIN_CONNECTIONS)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_left_for_redis_and_for_probes() {
        assert_eq!(fitting_connections(1_024, 1, 0), 1_024 - 128);
        assert_eq!(fitting_connections(1_024, 2, 1), (1_024 - 256) / 2);
        assert_eq!(fitting_connections(64, 1, 0), 8);
        assert_eq!(fitting_connections(1 << 20, 1, 2), (1 << 20) - 384);
    }
}

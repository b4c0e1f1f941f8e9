//! Log lines about an xDS server that is away.

use std::{
    fmt,
    time::{Duration, Instant},
};

const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Logs a lost connection at once, and then at most once a minute.
///
/// A server that comes and goes has one line a minute as well.
#[derive(Debug, Default)]
pub(super) struct OutageLog {
    logged: Option<Instant>,
    /// Whether the last line was about an outage that has not ended.
    is_open: bool,
}

impl OutageLog {
    pub(super) fn log_lost(&mut self, now: Instant, server: impl fmt::Display, why: &str) {
        if self.starts_line(now) {
            tracing::warn!("the xDS server {server} is away, the rules stay: {why}");
        }
    }

    pub(super) fn log_recovered(&mut self, server: impl fmt::Display) {
        if self.ends_line() {
            tracing::info!("the xDS server {server} answers again");
        }
    }

    fn starts_line(&mut self, now: Instant) -> bool {
        let is_due = self
            .logged
            .is_none_or(|logged| now.saturating_duration_since(logged) >= LOG_INTERVAL);
        if is_due {
            self.logged = Some(now);
            self.is_open = true;
        }
        is_due
    }

    fn ends_line(&mut self) -> bool {
        std::mem::take(&mut self.is_open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_has_one_line_at_once_and_one_a_minute() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        let lines = (0..=150).filter(|second| {
            let now = start + Duration::from_secs(*second);
            // A server that answers for a moment does not begin a new outage.
            let is_logged = log.starts_line(now);
            assert_eq!(log.ends_line(), is_logged);
            is_logged
        });
        assert_eq!(lines.collect::<Vec<_>>(), [0, 60, 120]);
    }
}

//! Delays after connections that could not be accepted.

use std::{
    io::{self, ErrorKind},
    time::{Duration, Instant},
};

use metrics::{Counter, counter};

use crate::metrics::ACCEPT_FAILURES;

const FIRST_DELAY: Duration = Duration::from_millis(50);
const MAX_DELAY: Duration = Duration::from_secs(1);

/// Shortest time between two warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Waits after a failure to accept: without file descriptors the next attempt fails at once. The delay doubles from 50 ms
/// to 1 s.
pub(crate) struct AcceptBackoff {
    listener: &'static str,
    failures: Counter,
    delay: Duration,
    warned_at: Option<Instant>,
}

impl AcceptBackoff {
    pub(crate) fn new(listener: &'static str) -> AcceptBackoff {
        let failures = counter!(ACCEPT_FAILURES, "listener" => listener);
        failures.absolute(0);
        AcceptBackoff {
            listener,
            failures,
            delay: FIRST_DELAY,
            warned_at: None,
        }
    }

    /// A connection was accepted.
    pub(crate) fn reset(&mut self) {
        self.delay = FIRST_DELAY;
    }

    /// Counts a failure and waits.
    pub(crate) async fn wait(&mut self, why: &io::Error) {
        if let Some(delay) = self.next_delay(why) {
            self.log(why);
            tokio::time::sleep(delay).await;
        }
    }

    /// The time until the next attempt; `None` if only this connection is lost.
    fn next_delay(&mut self, why: &io::Error) -> Option<Duration> {
        self.failures.increment(1);
        let is_of_peer = matches!(
            why.kind(),
            ErrorKind::ConnectionAborted
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionRefused
                | ErrorKind::Interrupted
        );
        if is_of_peer {
            return None;
        }
        let delay = self.delay;
        self.delay = (delay * 2).min(MAX_DELAY);
        Some(delay)
    }

    fn log(&mut self, why: &io::Error) {
        let now = Instant::now();
        let is_recent = |at: Instant| now.duration_since(at) < WARNING_INTERVAL;
        if !self.warned_at.is_some_and(is_recent) {
            self.warned_at = Some(now);
            tracing::warn!(
                listener = self.listener,
                "connections cannot be accepted, clients wait: {why}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_until_a_connection_is_accepted() {
        let mut backoff = AcceptBackoff::new("main");
        let full = io::Error::other("too many open files");
        let mut delay = |why: &io::Error| backoff.next_delay(why).map(|delay| delay.as_millis());

        assert_eq!([(); 3].map(|()| delay(&full)), [50, 100, 200].map(Some));
        assert_eq!(delay(&ErrorKind::ConnectionAborted.into()), None);
        assert_eq!([(); 3].map(|()| delay(&full)), [400, 800, 1_000].map(Some));

        backoff.reset();
        assert_eq!(backoff.next_delay(&full), Some(FIRST_DELAY));
    }
}

//! The state that all streams share.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ratelimit_core::Timestamp;
use ratelimit_envoy::quota::Holders;

use crate::{app::App, envoy::CurrentRules};

/// The state that the streams of a server share, and their clock.
#[derive(Clone)]
pub(super) struct QuotaContext {
    pub(super) app: App,
    pub(super) rules: Arc<CurrentRules>,
    pub(super) holders: Arc<Holders>,
    /// The beginning of the clock.
    epoch: Instant,
}

impl QuotaContext {
    pub(super) fn new(app: App, rules: Arc<CurrentRules>) -> QuotaContext {
        QuotaContext {
            app,
            rules,
            holders: Arc::default(),
            epoch: Instant::now(),
        }
    }

    /// The present time.
    pub(super) fn now(&self) -> Timestamp {
        self.timestamp(Instant::now())
    }

    /// A time of this process's monotonic clock.
    pub(super) fn timestamp(&self, at: Instant) -> Timestamp {
        let micros = at.saturating_duration_since(self.epoch).as_micros();
        Timestamp::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// The inverse of [`timestamp`](Self::timestamp).
    pub(super) fn instant(&self, at: Timestamp) -> Instant {
        self.epoch + Duration::from_micros(at.as_micros())
    }
}

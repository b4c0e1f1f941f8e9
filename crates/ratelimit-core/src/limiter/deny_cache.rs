//! The denials that a limiter remembers, so that a flood of them does not reach the store.

mod table;

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

pub(super) use self::table::Lookup;
use crate::limiter::deny_cache::table::{CachedDenial, Table};
use crate::limiter::{Limiter, LimiterInner};
use crate::{
    decision::{Decision, Outcome},
    limit::Limit,
    policy::{Policy, Throttle},
    store::{Hit, StoreError},
    time::{Clock, Timestamp},
};

/// So soon does a reset by another instance show.
const MAX_TTL: Duration = Duration::from_secs(1);

impl Limiter {
    /// Sends every hit to the store, also those that it denied a moment ago.
    ///
    /// A limiter whose store answers over a network caches denials unless this is called. A cached denial
    /// is exact: a hit is denied only where the store would deny it, unless another process refunded, reset
    /// or changed the budget within the last second. Its waits are never longer than the store's. Not
    /// cached are answers of a memory store, and denials under policies with a concurrency limit, with
    /// limits that count denied hits, or with an elastic throttle.
    #[must_use]
    pub fn without_deny_cache(self) -> Limiter {
        let shared = Arc::unwrap_or_clone(self.shared);
        let deny_cache = Arc::new(DenyCache::disabled());
        Limiter {
            shared: Arc::new(LimiterInner {
                deny_cache,
                ..shared
            }),
        }
    }
}

/// What a store denied lately.
pub(super) struct DenyCache {
    is_enabled: bool,
    time: AgeClock,
    /// Made when an answer of the store is first waited for, so that one in memory pays for nothing.
    table: OnceLock<Table>,
}

/// Where the age of denials is read.
enum AgeClock {
    Monotonic { since: Instant },
    Manual(Clock),
}

impl DenyCache {
    /// Denials of a store that decides on `clock`, or on a real one.
    pub(super) fn new(clock: Option<Clock>) -> DenyCache {
        let since = Instant::now();
        DenyCache {
            is_enabled: true,
            time: clock.map_or(AgeClock::Monotonic { since }, AgeClock::Manual),
            table: OnceLock::new(),
        }
    }

    fn disabled() -> DenyCache {
        DenyCache {
            is_enabled: false,
            ..DenyCache::new(None)
        }
    }

    /// Begins to remember.
    pub(super) fn enable(&self) {
        if self.is_enabled {
            self.table.get_or_init(Table::new);
        }
    }

    /// What has to be known of a hit from before it is sent; nothing for looks.
    pub(super) fn start_lookup(&self, hit: Hit<'_>) -> Option<Lookup> {
        let table = self.table.get()?;
        (!hit.is_read_only()).then(|| table.version(hit).sent_at(self.time.now()))
    }

    /// The denial of a hit that is about to be sent, if the store would answer it so.
    pub(super) fn lookup(&self, hit: Hit<'_>, sent: Lookup) -> Option<Decision> {
        self.table.get()?.find(hit, sent)
    }

    /// Learns from an answer; only a denial that was waited for comes with what was `sent`.
    pub(super) fn record(
        &self,
        hit: Hit<'_>,
        sent: Option<Lookup>,
        answer: &Result<Decision, StoreError>,
    ) {
        let Some(table) = self.table.get() else {
            return;
        };
        if hit.is_read_only() {
            return;
        }
        // An error takes no denial back: if its hit passed, there is only less to spend.
        let Ok(decision) = answer else {
            return;
        };
        match decision.outcome {
            Outcome::Impossible => {}
            Outcome::Denied { .. } if is_cacheable(hit.policy) => {
                if let Some(sent) = sent {
                    table.insert(CachedDenial::new(
                        hit,
                        sent,
                        decision,
                        time_to_live(decision),
                    ));
                }
            }
            Outcome::Denied { .. } | Outcome::Allowed { .. } => table.bump_version(hit),
        }
    }

    /// Forgets the denials of all budgets of a hit, and those that are still on their way.
    pub(super) fn invalidate(&self, hit: Hit<'_>) {
        if let Some(table) = self.table.get() {
            table.bump_version(hit);
        }
    }
}

impl AgeClock {
    fn now(&self) -> Timestamp {
        match self {
            AgeClock::Monotonic { since } => Timestamp::default() + since.elapsed(),
            AgeClock::Manual(clock) => clock.now(),
        }
    }
}

/// Whether a denial under the policy lasts until its wait is over: denied hits leave budgets as they are,
/// nothing but time gives back, and all is decided by what is stored.
fn is_cacheable(policy: &Policy) -> bool {
    !policy.has_concurrency_limit()
        && !policy.limits().iter().any(Limit::records_denials)
        && !matches!(policy.throttle(), Throttle::Elastic { .. })
}

/// How long every limit that denies goes on denying.
fn time_to_live(denied: &Decision) -> Duration {
    let waits = denied.limits().filter_map(|limit| match limit.outcome {
        Outcome::Denied { retry_after } => Some(retry_after),
        _ => None,
    });
    waits.fold(MAX_TTL, Duration::min)
}

impl fmt::Debug for DenyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenyCache")
            .field("is_enabled", &self.is_enabled)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

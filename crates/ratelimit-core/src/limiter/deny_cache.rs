//! The deny cache: repeated denials are answered without the store.
//!
//! | step of a check | call | effect |
//! |---|---|---|
//! | before the store | [`DenyCache::start_lookup`] | reads the versions and the time |
//! | | [`DenyCache::lookup`] | returns a cached denial; counted by `rate_limiter_deny_cached_total` |
//! | the store is pending | [`DenyCache::enable`] | makes the table, once |
//! | after the store | [`DenyCache::record`] | inserts a denial, or bumps the versions |
//! | refund, reset, release | [`DenyCache::invalidate`] | bumps the versions |
//!
//! The order matters. Versions are read before the hit is sent and bumped after a change is
//! complete, so a denial never survives a change that the store made after it
//! (`docs/decisions/0010-deny-cache.md`).

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
    store::Hit,
    time::{Clock, Timestamp},
};

/// The longest life of a cached denial. A reset or refund by another instance takes effect after
/// this long.
const MAX_TTL: Duration = Duration::from_secs(1);

impl Limiter {
    /// Sends every hit to the store, also those that it denied a moment ago.
    ///
    /// A limiter whose store answers over a network caches denials unless this is called.
    ///
    /// - A cached denial is exact: a hit is denied only where the store would deny it, unless
    ///   another process refunded, reset or changed the budget within the last second.
    /// - Its waits are never longer than the store's.
    /// - Not cached are answers of a memory store, and denials under policies with a concurrency
    ///   limit, with limits that count denied hits, or with an elastic throttle.
    ///
    /// Call it when the limiter is made: clones that exist already keep their cache.
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

/// The recent denials of a store.
///
/// - A denial is cached until its `retry_after`, at most one second, and answers equal or larger
///   hits on the same budgets.
/// - Entries are invalidated by version counters: an allowed hit, a refund or a reset of this
///   limiter bumps the counters of its budgets, and an entry with an older version is ignored.
///   Entries are never removed.
/// - A denial is inserted with the versions from before its hit was sent, so a change while the hit
///   was in flight invalidates it (decision record 0010).
/// - The table is made when an answer of the store is first pending. A limiter over a memory store
///   never makes it and pays one atomic load.
/// - An error of the store invalidates nothing, so an overloaded Redis does not get the whole flood
///   back.
pub(super) struct DenyCache {
    /// Unset by [`Limiter::without_deny_cache`]. The table is then never made, and every method
    /// returns at once.
    is_enabled: bool,
    /// Measures the age of denials. It is independent of the clock of the server.
    time: AgeClock,
    /// Empty until an answer of the store is first pending.
    table: OnceLock<Table>,
}

/// The clock of the ages of denials. Its times are compared only with each other.
enum AgeClock {
    /// The monotonic clock of the process.
    Monotonic { since: Instant },
    /// The manual clock that the store decides on, in tests: denials then age as the budgets do.
    Manual(Clock),
}

impl DenyCache {
    /// A cache for a store that decides on the manual `clock`, or on a real clock.
    pub(super) fn new(clock: Option<Clock>) -> DenyCache {
        let since = Instant::now();
        DenyCache {
            is_enabled: true,
            time: clock.map_or(AgeClock::Monotonic { since }, AgeClock::Manual),
            table: OnceLock::new(),
        }
    }

    /// A cache that never holds anything.
    fn disabled() -> DenyCache {
        DenyCache {
            is_enabled: false,
            ..DenyCache::new(None)
        }
    }

    /// Makes the table, so that denials are cached from now on.
    ///
    /// The hit that is pending now has no [`Lookup`], because there were no versions to read. Its
    /// denial is not cached.
    pub(super) fn enable(&self) {
        if self.is_enabled {
            self.table.get_or_init(Table::new);
        }
    }

    /// The versions of the budgets of a hit, which are read before it is sent. `None` for hits that
    /// charge nothing, and while there is no table.
    pub(super) fn start_lookup(&self, hit: Hit<'_>) -> Option<Lookup> {
        // The one atomic load that a limiter without a table pays.
        let table = self.table.get()?;
        (!hit.is_read_only()).then(|| table.version(hit).sent_at(self.time.now()))
    }

    /// The denial of a hit, if the store would deny it now. The waits are shorter by the age of the
    /// denial.
    pub(super) fn lookup(&self, hit: Hit<'_>, sent: Lookup) -> Option<Decision> {
        self.table.get()?.find(hit, sent)
    }

    /// Records a decision of the store. Only a denial that was pending comes with its lookup.
    ///
    /// An error is not recorded: if Redis allowed the hit all the same, there is only less to spend.
    ///
    /// | answer | effect |
    /// |---|---|
    /// | allowed | bumps the versions: the numbers of cached denials are not true any more |
    /// | denied, cacheable | inserts the denial |
    /// | denied, not cacheable | bumps the versions: the denial may have changed the state |
    /// | impossible, read-only hit | none |
    pub(super) fn record(&self, hit: Hit<'_>, sent: Option<Lookup>, decision: &Decision) {
        let Some(table) = self.table.get() else {
            return;
        };
        if hit.is_read_only() {
            return;
        }
        match decision.outcome {
            Outcome::Impossible => {}
            // A denial without a lookup was answered synchronously, or was sent before there was a
            // table.
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

    /// Invalidates the denials of all budgets of a hit, also those whose hits are still in flight.
    ///
    /// The caller calls it after the store has completed the change.
    pub(super) fn invalidate(&self, hit: Hit<'_>) {
        if let Some(table) = self.table.get() {
            table.bump_version(hit);
        }
    }
}

impl AgeClock {
    /// The present moment; microseconds since the cache was made, or the time of the manual clock.
    fn now(&self) -> Timestamp {
        match self {
            AgeClock::Monotonic { since } => Timestamp::default() + since.elapsed(),
            AgeClock::Manual(clock) => clock.now(),
        }
    }
}

/// Whether a denial under the policy holds until its wait is over.
///
/// It does not where slots are released at any time, where denied hits change the budget, or where
/// the load of the host decides as well.
fn is_cacheable(policy: &Policy) -> bool {
    !policy.has_concurrency_limit()
        && !policy.limits().iter().any(Limit::records_denials)
        && !matches!(policy.throttle(), Throttle::Elastic { .. })
}

/// The time for which every limit that denies keeps denying: the shortest `retry_after`, at most
/// [`MAX_TTL`].
///
/// The longest wait would keep the outcome true for longer, but not the numbers of each limit.
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

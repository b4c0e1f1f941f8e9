//! The denials that a limiter remembers, so that a flood of them does not reach the store.

mod table;

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

pub(super) use self::table::Sent;
use self::table::{Denial, Table};
use super::{Limiter, Shared};
use crate::{
    decision::{Decision, Outcome},
    limit::Limit,
    policy::{Policy, Throttle},
    store::{Hit, Store as _, StoreError},
    time::{Clock, Timestamp},
};

/// So soon does a reset by another instance show.
const LONGEST_LIFE: Duration = Duration::from_secs(1);

/// Whether a limiter remembers what its store denied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DenyCache {
    /// It answers by itself what the store denied less than a second before and would deny again.
    #[default]
    On,
    /// It asks the store for every hit.
    Off,
}

impl Limiter {
    /// Whether denials are remembered; [`DenyCache::On`] unless set.
    ///
    /// What is remembered is exact: a hit is denied only where the store would deny it, unless
    /// somebody else gave back, reset or changed the budget within the last second. Its waits are never
    /// longer than the store's. Answers from memory are not remembered, nor are those of policies with
    /// a concurrency limit, limits that count denied hits, or an elastic throttle mode.
    #[must_use]
    pub fn deny_cache(self, mode: DenyCache) -> Limiter {
        let denials = Arc::new(Denials::new(mode, self.shared.store.manual_clock()));
        let shared = Arc::unwrap_or_clone(self.shared);
        Limiter {
            shared: Arc::new(Shared { denials, ..shared }),
        }
    }
}

/// What a store denied lately.
pub(super) struct Denials {
    mode: DenyCache,
    time: Time,
    /// Made when an answer of the store is first waited for, so that one in memory pays for nothing.
    table: OnceLock<Table>,
}

/// Where the age of denials is read.
enum Time {
    Monotonic { since: Instant },
    Manual(Clock),
}

impl Denials {
    /// Denials of a store that decides on `clock`, or on a real one.
    pub(super) fn new(mode: DenyCache, clock: Option<Clock>) -> Denials {
        let since = Instant::now();
        Denials {
            mode,
            time: clock.map_or(Time::Monotonic { since }, Time::Manual),
            table: OnceLock::new(),
        }
    }

    /// Begins to remember.
    pub(super) fn begin(&self) {
        if self.mode == DenyCache::On {
            self.table.get_or_init(Table::new);
        }
    }

    /// What has to be known of a hit from before it is sent; nothing for looks.
    pub(super) fn sending(&self, hit: Hit<'_>) -> Option<Sent> {
        let table = self.table.get()?;
        (!hit.is_look()).then(|| table.count(hit).sent_at(self.time.now()))
    }

    /// The denial of a hit that is about to be sent, if the store would answer it so.
    pub(super) fn recall(&self, hit: Hit<'_>, sent: Sent) -> Option<Decision> {
        self.table.get()?.find(hit, sent)
    }

    /// Learns from an answer; only a denial that was waited for comes with what was `sent`.
    pub(super) fn learn(
        &self,
        hit: Hit<'_>,
        sent: Option<Sent>,
        answer: &Result<Decision, StoreError>,
    ) {
        let Some(table) = self.table.get() else {
            return;
        };
        if hit.is_look() {
            return;
        }
        // An error takes no denial back: if its hit passed, there is only less to spend.
        let Ok(decision) = answer else {
            return;
        };
        match decision.outcome {
            Outcome::Impossible => {}
            Outcome::Denied { .. } if lasts(hit.policy) => {
                if let Some(sent) = sent {
                    table.keep(Denial::new(hit, sent, decision, life(decision)));
                }
            }
            Outcome::Denied { .. } | Outcome::Allowed { .. } => table.change(hit),
        }
    }

    /// Forgets the denials of all budgets of a hit, and those that are still on their way.
    pub(super) fn forget(&self, hit: Hit<'_>) {
        if let Some(table) = self.table.get() {
            table.change(hit);
        }
    }
}

impl Time {
    fn now(&self) -> Timestamp {
        match self {
            Time::Monotonic { since } => Timestamp::default() + since.elapsed(),
            Time::Manual(clock) => clock.now(),
        }
    }
}

/// Whether a denial under the policy lasts until its wait is over: denied hits leave budgets as they are,
/// nothing but time gives back, and all is decided by what is stored.
fn lasts(policy: &Policy) -> bool {
    !policy.holds_slots()
        && !policy.limits().iter().any(Limit::counts_denied)
        && !matches!(policy.throttle_mode(), Throttle::Elastic { .. })
}

/// How long every limit that denies goes on denying.
fn life(denied: &Decision) -> Duration {
    let waits = denied.limits().filter_map(|limit| match limit.outcome {
        Outcome::Denied { retry_after } => Some(retry_after),
        _ => None,
    });
    waits.fold(LONGEST_LIFE, Duration::min)
}

impl fmt::Debug for Denials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mode.fmt(f)
    }
}

#[cfg(test)]
mod tests;

//! The numbers of prefetching for one key, for operators.

use std::time::Duration;

use crate::limiter::{Limiter, prefetch::sizing::Sizing};
use crate::{store::Hit, sync::lock};

/// How the budgets of a hit are prefetched, as [`Limiter::prefetch_state`] returns it.
///
/// - The share and the slices follow from the policy. They are known before the first hit.
/// - The units on hand are those of this limiter. Other instances have their own, all of them at most the share
///   of the limit for long.
/// - The server shows it in `explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrefetchState {
    /// The share of each limit that may be charged and not spent, in percent.
    pub share_percent: u32,
    /// The units of a full slice, for each limit of the policy. Shares below four units are never prefetched.
    pub slice_units: Vec<u64>,
    /// The time for which a slice is meant, at most. It is shorter while the instances together spend more than the
    /// limit gives.
    pub hold: Duration,
    /// The units that this limiter has on hand.
    pub on_hand: u64,
}

impl Limiter {
    /// Reports how the budgets of a hit are prefetched, without a call to the store.
    ///
    /// Returns `None` for a policy without [`with_prefetch`](crate::Policy::with_prefetch), and on a memory store, which
    /// prefetches nothing.
    ///
    /// ```
    /// use ratelimit_core::{Key, Limiter, Policy, store::Hit};
    ///
    /// let api = Policy::parse("api", "100000/s")?.with_prefetch(5)?;
    /// let state = Limiter::in_memory().prefetch_state(Hit::new(&api, &Key::new("alice")?));
    /// assert_eq!(state, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefetch_state(&self, hit: Hit<'_>) -> Option<PrefetchState> {
        let policy = hit.policy;
        let share_percent = policy.prefetch()?;
        if self.shared.memory.is_some() {
            return None;
        }
        let prefetch = &self.shared.prefetch;
        let sizing = Sizing::new(policy.limits().iter(), share_percent, policy.cost().get());
        let limits = 0..policy.limits().len();
        let now = prefetch.clock.now();
        let on_hand = prefetch
            .table
            .with(prefetch.table.hash(&hit), &hit, |entry| {
                lock(&entry.key).usable_at(now)
            });
        Some(PrefetchState {
            share_percent,
            slice_units: limits.map(|index| sizing.cap_of(index)).collect(),
            hold: Duration::from_micros(sizing.hold()),
            on_hand: on_hand.unwrap_or(0),
        })
    }
}

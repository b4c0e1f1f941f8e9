//! The public functions of prefetching.

use std::{sync::Arc, time::Duration};

use super::block::{BlockSize, share_of};
use crate::{limiter::Limiter, store::Hit};

/// How the budgets of a hit are prefetched, as [`Limiter::prefetch_state`] returns it.
///
/// - The share and the block follow from the policy. They are known before the first hit.
/// - `on_hand` is what this limiter holds. Each instance has at most two blocks of a key.
/// - The server shows it in `explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrefetchState {
    /// The share of each limit that one block may charge, in percent.
    pub share_percent: u32,
    /// The share in units, for each limit of the policy. A block has the smallest of them; below four nothing is
    /// prefetched.
    pub slice_units: Vec<u64>,
    /// The longest time for which a block may be spent.
    pub hold: Duration,
    /// The units that this limiter holds and has not spent.
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
        let share_percent = hit.policy.prefetch()?;
        if self.shared.memory.is_some() {
            return None;
        }
        let limits = hit.policy.limits().iter();
        Some(PrefetchState {
            share_percent,
            slice_units: limits.map(|limit| share_of(limit, share_percent)).collect(),
            hold: Duration::from_micros(BlockSize::of(hit.policy).life),
            on_hand: self.shared.prefetch.units_left(&hit),
        })
    }

    /// Returns what this limiter has prefetched and not spent, before a planned end.
    ///
    /// - The store has the units back before the future is ready, also those of a call that is under way: the tokio
    ///   runtime of that call must run meanwhile.
    /// - A bucket that refills a block within a second needs no refund, and gets none.
    /// - Dropping the last clone of a limiter returns them in the background, as long as its tokio runtime runs.
    ///
    /// ```
    /// use ratelimit_core::Limiter;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    ///
    /// let limiter = Limiter::in_memory();
    /// limiter.return_prefetched().await; // a memory store prefetches nothing
    /// # }
    /// ```
    pub async fn return_prefetched(&self) {
        let prefetch = Arc::clone(&self.shared.prefetch);
        let _ = prefetch.return_all(self.clone()).await;
    }
}

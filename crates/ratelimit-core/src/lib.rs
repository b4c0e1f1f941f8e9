//! Rate limiting with exact, equal decisions from memory and from Redis.
//!
//! - A [`Policy`] is a name and one to eight [`Limit`]s that are decided together, all or nothing.
//! - A [`Key`] names the budget that a hit spends: a client, a user, an address.
//! - A [`Limiter`] decides hits with a [`Store`](store::Store) and returns a [`Verdict`].
//! - A denial is a result and not an error. It spends nothing, and reports exactly when the same
//!   hit would pass.
//!
//! ```
//! use ratelimit_core::{Key, Limiter, Policy};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let limiter = Limiter::in_memory();
//!     let login = Policy::parse("login", "2/min; fixed_window 20/d")?;
//!     let alice = Key::new("alice")?;
//!
//!     assert!(limiter.check(&login, &alice).await.is_allowed());
//!     assert!(limiter.check(&login, &alice).await.is_allowed());
//!     let third = limiter.check(&login, &alice).await;
//!     assert!(!third.is_allowed());
//!     Ok(())
//! }
//! ```
//!
//! # The path of a hit
//!
//! ```text
//!     Policy, Key, cost
//!            |
//!     Limiter::check      check_cost, check_keys, peek, dry_run, reserve
//!            |
//!        Store::hit       MemoryStore: one shard; RedisStore: one script call
//!            |
//!        Decision         or a StoreError, which the FailureMode decides
//!            |
//!         Verdict
//! ```
//!
//! # Choosing a limit
//!
//! | requirement | limit |
//! |---|---|
//! | a steady rate with bursts | [`TokenBucket`], the default of `10/s` |
//! | a steady rate without bursts, by delaying hits | [`LeakyBucket`] |
//! | a quota that resets at a time of the clock | [`FixedWindow`] |
//! | never more than the limit in any span | [`SlidingWindowLog`] |
//! | nearly that, for large limits | [`SlidingWindowCounter`] |
//! | a bound on requests in progress | [`Concurrency`] |
//! | a block for clients that ignore denials | [`PenaltyBox`], beside another limit |
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `redis` | the store that all instances of a service share |
//! | `redis-cluster` | stores on a `ClusterConnection` of the redis crate; `redis+cluster://` URLs need only `redis` |
//! | `redis-tls` | TLS connections to Redis |
//! | `bb8` | Redis connections from a bb8 pool |
//! | `acquire` | `Limiter::acquire`, which waits until a hit passes |
//! | `tokio` | background tasks that renew and release slots |

#![allow(
    clippy::inline_always,
    reason = "the fast path is one inlined piece: passing its result on in memory takes longer than computing it"
)]

/// Implements `Debug` as `Display`, because `main` prints its error with `Debug`.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_display {
    ($Error:ty) => {
        impl ::std::fmt::Debug for $Error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    };
}

mod algorithm;
mod budget;
mod decision;
mod key;
mod key_set;
mod limit;
mod limiter;
mod load_signal;
pub mod metrics;
mod offenders;
mod policy;
pub mod store;
mod sync;
mod time;

#[cfg(feature = "acquire")]
pub use self::limiter::AcquireError;
#[cfg(feature = "tokio")]
pub use self::limiter::PrefetchState;
#[cfg(feature = "redis")]
pub use self::store::{InvalidRedisConfig, RedisConfig, RedisStore};
pub use self::{
    algorithm::{
        Algorithm, Concurrency, FixedWindow, InvalidLimit, LeakyBucket, PenaltyBox,
        SlidingWindowCounter, SlidingWindowLog, TokenBucket,
    },
    decision::{Decision, LimitDecision, Outcome},
    key::{InvalidKey, Key},
    key_set::KeySet,
    limit::{Limit, NotPrefetchable, ParseLimitError},
    limiter::{
        Check, JointCheck, JointVerdict, Limiter, MemberVerdict, Reservation, Reserve, SettleError,
        UncheckedReason, Verdict,
    },
    load_signal::{InFlightGuard, LoadSignal},
    offenders::{KeyDisplay, Offender, Offenders},
    policy::{FailureMode, InvalidPolicy, InvalidThrottle, Policy, RedundantLimit, Throttle},
    store::MemoryStore,
    time::{Clock, Timestamp},
};

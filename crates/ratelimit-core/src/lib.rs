//! Rate limiting with exact, equal decisions from memory and from Redis.
//!
//! - A [`Policy`] is a name and one to eight [`Limit`]s that are decided together, all or nothing.
//! - A [`Key`] names the budget that a hit spends: a client, a user, an address.
//! - A [`Limiter`] decides hits with a [`Store`](store::Store) and returns a [`Verdict`].
//! - A denial is a result and not an error. It spends nothing, and reports exactly when the same
//!   hit would pass.
//!
//! On this page:
//!
//! - [A check](#a-check)
//! - [The path of a hit](#the-path-of-a-hit)
//! - [Choosing a limit](#choosing-a-limit)
//! - [One budget for all instances](#one-budget-for-all-instances)
//! - [Waiting for a turn](#waiting-for-a-turn)
//! - [Tests without sleeping](#tests-without-sleeping)
//! - [Features](#features)
//!
//! # A check
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
//! | a block for clients that ignore denials | [`PenaltyBox`], next to another limit |
//!
//! A limit is a text, or a value of its type:
//!
//! ```
//! use ratelimit_core::{FixedWindow, Policy, TokenBucket};
//! use std::time::Duration;
//!
//! let text = Policy::parse("login", "5/min; fixed_window 20/d")?;
//! let day = FixedWindow::new(20, Duration::from_secs(24 * 60 * 60))?;
//! let typed = Policy::new("login", TokenBucket::per_minute(5))?.with_limit(day)?;
//! assert_eq!(text, typed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # One budget for all instances
//!
//! A `RedisStore` (feature `redis`) shares the budgets. Redis decides on its own clock, in one script call. While it
//! does not answer, the [`FailureMode`] of the policy or of the limiter decides.
//!
//! ```no_run
//! # #[cfg(feature = "redis")]
//! # {
//! use ratelimit_core::{FailureMode, Limiter, Policy, RedisConfig, RedisStore};
//!
//! let store = RedisStore::new(RedisConfig::new("redis://127.0.0.1:6379")?);
//! let limiter = Limiter::new(store).failure_mode(FailureMode::Local);
//! let login = Policy::parse("login", "5/min")?.with_failure_mode(FailureMode::Closed);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Waiting for a turn
//!
//! With the feature `acquire`, `Limiter::acquire` waits until a hit passes: for jobs, and for calls to a service
//! that has a limit of its own. Waiters of one key are served in their order.
//!
//! ```
//! use ratelimit_core::{Key, Limiter, Policy};
//! use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!
//! let limiter = Limiter::in_memory();
//! let mails = Policy::parse("mails", "50/s burst 1")?;
//! let alice = Key::new("alice")?;
//! # #[cfg(feature = "acquire")]
//! for _ in 0..3 {
//!     let turn = limiter.acquire(&mails, &alice, Duration::from_secs(1)).await?;
//!     assert!(turn.is_allowed());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Tests without sleeping
//!
//! A [`Clock`] that a test moves takes the place of time:
//!
//! ```
//! use ratelimit_core::{Clock, Key, Limiter, MemoryStore, Policy, Timestamp};
//! use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!
//! let clock = Clock::manual(Timestamp::from_secs(100));
//! let limiter = Limiter::new(MemoryStore::new().clock(clock.clone()));
//! let (policy, key) = (Policy::parse("api", "1/min")?, Key::new("alice")?);
//!
//! assert!(limiter.check(&policy, &key).await.is_allowed());
//! assert!(!limiter.check(&policy, &key).await.is_allowed());
//! clock.advance(Duration::from_secs(60));
//! assert!(limiter.check(&policy, &key).await.is_allowed());
//! # Ok(())
//! # }
//! ```
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

#![cfg_attr(docsrs, feature(doc_cfg))]
// An example that is copied into a program must not warn there.
#![doc(test(attr(deny(unused_must_use))))]
#![allow(
    clippy::inline_always,
    reason = "the fast path is one inlined piece: passing its result on in memory takes longer than computing it"
)]

/// Implements `Debug` as `Display`, because `main` prints its error with `Debug`.
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
mod log_throttle;
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
    policy::{FailureMode, InvalidPolicy, InvalidThrottle, Policy, Throttle},
    store::MemoryStore,
    time::{Clock, Timestamp},
};

/// Compiles and runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

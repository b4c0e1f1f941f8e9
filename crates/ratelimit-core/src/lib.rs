//! Rate limiting with exact, equal answers from memory and from Redis.
//!
//! A [`Policy`] is one limit or several, decided together. A [`Key`] says whose budget is spent. A
//! [`Limiter`] asks its [`Store`] whether a hit passes, and answers with a [`Verdict`]. Being denied is an
//! answer and no error, it spends nothing, and it says exactly when the same hit would pass.
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
//! ```text
//!     Policy, Key, cost
//!            |
//!     Limiter::check      check_cost, look
//!            |
//!        Store::hit       MemoryStore: one shard; RedisStore: one script call
//!            |
//!        Decision         or a StoreError, which the FailureMode answers
//!            |
//!         Verdict
//! ```
//!
//! The feature `redis` adds the store that all instances of a service share; `toml` and `yaml` read
//! policies from a file, `acquire` waits for one's turn.

#![allow(
    clippy::inline_always,
    reason = "the most common hit is decided in one piece: handing it on in memory takes longer than deciding it"
)]

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
mod store;
mod sync;
mod time;

#[cfg(feature = "acquire")]
pub use self::limiter::AcquireError;
#[cfg(feature = "redis")]
pub use self::store::{InvalidRedisConfig, RedisConfig, RedisStore};
pub use self::{
    algorithm::{
        Algorithm, Concurrency, FixedWindow, InvalidLimit, LeakyBucket, PenaltyBox,
        SlidingWindowCounter, SlidingWindowLog, TokenBucket,
    },
    budget::Adjustment,
    decision::{Decision, LimitDecision, Outcome},
    key::{InvalidKey, Key},
    key_set::KeySet,
    limit::{Limit, ParseLimitError},
    limiter::{Check, Limiter, Reservation, Reserve, SettleError, UncheckedReason, Verdict},
    load_signal::{InFlightGuard, LoadSignal},
    offenders::{KeyDisplay, Offender, Offenders},
    policy::{
        FailureMode, HitMode, InvalidPolicy, InvalidThrottle, Overdraft, Policy, RedundantLimit,
        Throttle,
    },
    store::{
        Hit, InvalidReceipt, MemoryStats, MemoryStore, Receipt, Settlement, Store, StoreError,
        StoreFuture,
    },
    time::{Clock, Timestamp},
};

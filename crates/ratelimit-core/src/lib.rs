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
//!     let alice = Key::explicit("alice")?;
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

pub mod adapter;
mod algorithm;
mod attributes;
mod budget;
mod client_addr;
mod decision;
mod fields;
mod install;
mod key;
mod key_set;
mod limit;
mod limiter;
mod load_signal;
pub mod metrics;
mod offenders;
mod policy;
#[cfg(any(feature = "toml", feature = "yaml"))]
mod policy_file;
mod registry;
mod rules;
mod store;
mod time;

#[cfg(feature = "acquire")]
pub use self::limiter::AcquireError;
#[cfg(any(feature = "toml", feature = "yaml"))]
pub use self::policy_file::{Code, Finding, Format, InvalidPolicyFile, PolicyFile, Severity};
#[cfg(any(feature = "toml", feature = "yaml"))]
pub use self::registry::NotReloaded;
#[cfg(feature = "redis")]
pub use self::store::{InvalidRedisConfig, RedisConfig, RedisStore};
pub use self::{
    algorithm::{
        Algorithm, Concurrency, FixedWindow, InvalidLimit, LeakyBucket, PenaltyBox,
        SlidingWindowCounter, SlidingWindowLog, TokenBucket,
    },
    attributes::{Attribute, MissingPolicies},
    client_addr::{
        ChainHeader, Client, ClientAddr, ExplicitKey, HeaderLines, InvalidHeader, InvalidNetwork,
        InvalidPrefix, InvalidProxies, Network, NoClient, ProviderHeader, Source, TrustedProxies,
        carries_forwarding_headers, is_private, parse_address,
    },
    decision::{Decision, LimitDecision, Outcome},
    fields::{
        FieldValue, HeaderStyle, Problem, policy_field, retry_after_millis, retry_after_secs,
    },
    install::{
        AlreadyInstalled, NotInstalled, handler_policy, install, install_registry, installed,
        installed_registry,
    },
    key::{InvalidKey, Key},
    key_set::KeySet,
    limit::{Limit, ParseLimitError},
    limiter::{Check, Limiter, Reservation, Reserve, SettleError, UncheckedReason, Verdict},
    load_signal::{InFlightGuard, LoadSignal},
    offenders::{KeyDisplay, Offender, Offenders},
    policy::{
        Adjustment, ChargeOn, CostOf, FailureMode, HitMode, InvalidPolicy, InvalidTerm, Overdraft,
        Policy, RedundantLimit, SettleBy, StatusSet, Throttle,
    },
    registry::{Registry, UnknownPolicy},
    rules::{Blocked, Facts, InvalidRule, Judged, Rule},
    store::{
        Hit, InvalidReceipt, MemoryStats, MemoryStore, Receipt, Settlement, Store, StoreError,
        StoreFuture,
    },
    time::{Clock, Timestamp},
};

/// For the code that attributes expand to, and for nobody else.
#[doc(hidden)]
pub mod private {
    pub use inventory;
}

/// What reads policy files, for programs whose own settings stand in the same file.
#[cfg(any(feature = "toml", feature = "yaml"))]
pub mod reading {
    pub use super::policy_file::{
        Entry, Field, Findings, Node, Value, parse, read, read_policies, read_table,
    };
}

//! Rate limiting with exact, equal answers from memory and from Redis.

mod algorithm;
mod client_addr;
mod decision;
mod fields;
mod key;
mod limit;
mod limiter;
mod policy;
mod store;
mod time;

#[cfg(feature = "redis")]
pub use crate::store::{InvalidRedisConfig, RedisConfig, RedisStore};
pub use crate::{
    algorithm::{
        Algorithm, FixedWindow, InvalidLimit, LeakyBucket, SlidingWindowCounter, SlidingWindowLog,
        TokenBucket,
    },
    client_addr::{
        ChainHeader, Client, ClientAddr, ExplicitKey, HeaderLines, InvalidHeader, InvalidPrefix,
        InvalidProxies, NoClient, ProviderHeader, Source, TrustedProxies,
        carries_forwarding_headers, is_private, parse_address,
    },
    decision::{Decision, LimitDecision, Outcome},
    fields::{
        FieldValue, HeaderStyle, Problem, policy_field, retry_after_millis, retry_after_secs,
    },
    key::{InvalidKey, Key},
    limit::{InvalidText, Limit},
    limiter::{Check, FailureMode, Limiter, Reason, Verdict},
    policy::{InvalidPolicy, Policy},
    store::{Hit, MemoryStats, MemoryStore, Store, StoreError, StoreFuture},
    time::{Clock, Timestamp},
};

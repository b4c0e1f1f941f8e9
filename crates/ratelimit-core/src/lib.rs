//! Rate limiting with exact, equal answers from memory and from Redis.

mod algorithm;
mod decision;
mod key;
mod limit;
mod limiter;
mod policy;
mod store;
mod time;

pub use crate::{
    algorithm::{
        Algorithm, FixedWindow, InvalidLimit, LeakyBucket, SlidingWindowCounter, SlidingWindowLog,
        TokenBucket,
    },
    decision::{Decision, LimitDecision, Outcome},
    key::{InvalidKey, Key},
    limit::{InvalidText, Limit},
    limiter::{Check, FailureMode, Limiter, Reason, Verdict},
    policy::{InvalidPolicy, Policy},
    store::{Hit, MemoryStats, MemoryStore, Store, StoreError, StoreFuture},
    time::{Clock, Timestamp},
};

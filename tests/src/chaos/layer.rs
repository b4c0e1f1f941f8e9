//! What stands between callers and Redis: our limiter, or something plain to compare it with.

use std::{fmt, future::Future, pin::Pin};

use ratelimit_core::{FailureMode, Key, Limiter, Policy, RedisConfig, RedisStore, Verdict};

use crate::redis::is_plain_run;

/// An answer that is on its way.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a caller was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The store decided.
    Checked {
        /// Whether to go on.
        allowed: bool,
    },
    /// The store did not decide.
    Unchecked {
        /// Whether to go on.
        allowed: bool,
    },
    /// Nothing, for as long as the test ran.
    Nothing,
}

impl CallOutcome {
    /// Whether the store decided.
    pub const fn is_checked(self) -> bool {
        matches!(self, CallOutcome::Checked { .. })
    }

    /// Whether to go on.
    pub const fn is_allowed(self) -> bool {
        matches!(
            self,
            CallOutcome::Checked { allowed: true } | CallOutcome::Unchecked { allowed: true }
        )
    }
}

impl From<&Verdict> for CallOutcome {
    fn from(verdict: &Verdict) -> CallOutcome {
        let allowed = verdict.is_allowed();
        match verdict {
            Verdict::Checked(_) => CallOutcome::Checked { allowed },
            _ => CallOutcome::Unchecked { allowed },
        }
    }
}

/// Asks a store.
pub trait Layer: fmt::Debug + Send + Sync + 'static {
    /// Spends one unit of the budget of `key`, or nothing.
    fn hit<'a>(&'a self, policy: &'a Policy, key: &'a str) -> Later<'a, CallOutcome>;
}

/// Reads what the server counted, past every fault.
pub trait Audit: fmt::Debug + Send + Sync + 'static {
    /// How much of the budget of `key` is spent.
    fn counted<'a>(&'a self, policy: &'a Policy, key: &'a str) -> Later<'a, u64>;
}

/// A limiter of ours.
#[derive(Clone, Debug)]
pub struct Ours {
    /// The store, to ask whether it is connected.
    pub store: RedisStore,
    /// The limiter over it.
    pub limiter: Limiter,
}

impl Ours {
    /// A limiter over a store of its own.
    pub fn new(config: RedisConfig, mode: FailureMode) -> Ours {
        let store = RedisStore::new(config);
        let limiter = Limiter::new(store.clone()).failure_mode(mode);
        Ours {
            limiter: if is_plain_run() {
                limiter.without_deny_cache()
            } else {
                limiter
            },
            store,
        }
    }
}

impl Layer for Ours {
    fn hit<'a>(&'a self, policy: &'a Policy, key: &'a str) -> Later<'a, CallOutcome> {
        Box::pin(async move {
            let key = Key::new(key).expect("a valid key");
            CallOutcome::from(&self.limiter.check(policy, &key).await)
        })
    }
}

impl Audit for Ours {
    fn counted<'a>(&'a self, policy: &'a Policy, key: &'a str) -> Later<'a, u64> {
        Box::pin(async move {
            let key = Key::new(key).expect("a valid key");
            match self.limiter.peek(policy, &key).await {
                Verdict::Checked(look) => look.limit - look.remaining,
                unchecked => panic!("no audit: {unchecked:?}"),
            }
        })
    }
}

//! A limit on wrong admin tokens.

use futures_util::FutureExt as _;
use ratelimit_core::{
    Key, MemoryStore, Policy,
    store::{Hit, Receipt, Store as _},
};
use ratelimit_http::response::retry_after_secs;

use crate::api_error::ApiError;

/// Wrong tokens that one address may send.
const LIMIT: &str = "sliding_window_log 5/min";
/// Addresses that are remembered, about 2 MB. Beyond that, an address with attempts left is forgotten first.
const MAX_ADDRESSES: usize = 10_000;

/// Limits wrong tokens for each client address.
///
/// - An attempt to sign in is charged before the token is compared, so concurrent attempts cannot exceed the limit. A
///   right token gets its charge back. An address that has used its attempts up cannot sign in with a right token either:
///   otherwise guessing could go on.
/// - A wrong bearer token is charged after the comparison, because the programs of an address must not stop when somebody
///   else there guesses. Guessing by such calls is slowed by nothing but the length of the token, and is logged.
/// - The store is private: these attempts are in no budget and no metric of a policy.
#[derive(Debug)]
pub(crate) struct SignInLimit {
    store: MemoryStore,
    policy: Policy,
}

impl Default for SignInLimit {
    fn default() -> SignInLimit {
        SignInLimit::on(MemoryStore::new().capacity(MAX_ADDRESSES))
    }
}

impl SignInLimit {
    fn on(store: MemoryStore) -> SignInLimit {
        let policy = Policy::parse("console-sign-in", LIMIT).expect("the limit is valid");
        SignInLimit { store, policy }
    }

    /// Charges an attempt to sign in, and returns whether `is_right` accepts its token.
    #[cfg(feature = "console")]
    pub(crate) async fn attempt(
        &self,
        address: &Key,
        is_right: impl FnOnce() -> bool,
    ) -> Result<bool, ApiError> {
        let receipt = self.charge(address)?;
        let is_right = is_right();
        if is_right {
            let refunded = self.store.settle(
                &receipt,
                ratelimit_core::store::Adjustment::Refund { units: 1 },
            );
            refunded.await.map_err(|_| ApiError::unavailable())?;
        }
        Ok(is_right)
    }

    /// Charges a wrong bearer token, and returns the error for it: 401, or 429 beyond the limit.
    pub(crate) fn charge_wrong(&self, address: &Key) -> ApiError {
        match self.charge(address) {
            Ok(_) => ApiError::wrong_token(),
            Err(refused) => refused,
        }
    }

    fn charge(&self, address: &Key) -> Result<Receipt, ApiError> {
        let hit = Hit::new(&self.policy, address);
        // A memory store always decides, and at once.
        let charged = self.store.hit(hit).now_or_never();
        let charged = charged.and_then(Result::ok);
        let charged = charged.ok_or_else(ApiError::unavailable)?;
        Receipt::new(hit, &charged).ok_or_else(|| {
            let seconds = retry_after_secs(&charged.decision).unwrap_or(1);
            ApiError::too_many_tokens(seconds)
        })
    }
}

#[cfg(all(test, feature = "console"))]
mod tests {
    use std::{cell::Cell, time::Duration};

    use ratelimit_core::{Clock, Timestamp};

    use super::*;

    fn limit() -> (SignInLimit, Clock) {
        let clock = Clock::manual(Timestamp::from_secs(1_000));
        (
            SignInLimit::on(MemoryStore::new().clock(clock.clone())),
            clock,
        )
    }

    fn address(last: u8) -> Key {
        Key::ip([192, 0, 2, last].into())
    }

    #[tokio::test]
    async fn five_wrong_tokens_block_an_address_for_a_minute() {
        let (limit, clock) = limit();
        for _ in 0..5 {
            assert_eq!(limit.attempt(&address(1), || false).await, Ok(false));
        }

        let refused = limit.attempt(&address(1), || true).await;
        assert_eq!(refused, Err(ApiError::too_many_tokens(60)));
        assert_eq!(limit.attempt(&address(2), || true).await, Ok(true));

        clock.advance(Duration::from_secs(59));
        assert!(limit.attempt(&address(1), || true).await.is_err());
        clock.advance(Duration::from_secs(1));
        assert_eq!(limit.attempt(&address(1), || true).await, Ok(true));
    }

    #[tokio::test]
    async fn right_tokens_are_not_counted() {
        let (limit, _) = limit();
        for _ in 0..20 {
            assert_eq!(limit.attempt(&address(1), || true).await, Ok(true));
        }
        for _ in 0..5 {
            assert_eq!(limit.attempt(&address(1), || false).await, Ok(false));
        }
        assert!(limit.attempt(&address(1), || false).await.is_err());
    }

    /// Makes a wrong attempt whose token is compared while the next one has begun.
    fn nested(limit: &SignInLimit, address: &Key, compared: &Cell<u32>, depth: u32) {
        let attempt = limit.attempt(address, || {
            compared.set(compared.get() + 1);
            if depth > 0 {
                nested(limit, address, compared, depth - 1);
            }
            false
        });
        let _ = attempt.now_or_never();
    }

    #[tokio::test]
    async fn attempts_at_the_same_time_do_not_exceed_the_limit() {
        let (limit, _) = limit();
        let (limit, address) = (&limit, &address(1));
        let compared = Cell::new(0);

        nested(limit, address, &compared, 20);

        assert_eq!(compared.get(), 5);
    }

    #[tokio::test]
    async fn the_number_of_addresses_is_bounded() {
        let limit = SignInLimit::default();
        for last in 0..30_000_u32 {
            let address = Key::ip(std::net::Ipv4Addr::from_bits(last).into());
            let _ = limit.attempt(&address, || false).await;
        }

        assert!(limit.store.stats().keys <= MAX_ADDRESSES);
    }
}

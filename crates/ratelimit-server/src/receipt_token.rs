//! Receipts as signed text: hexadecimal bytes with an HMAC.

use std::{fmt, fs::File, io::Read as _};

use ratelimit_core::store::{InvalidReceipt, Receipt};
use subtle::ConstantTimeEq as _;

use crate::{
    api_error::ApiError,
    config::{AdminToken, ReloadableConfig, StoreConfig},
    hex::{from_hex, to_hex},
    hmac::hmac_sha256,
};

const CODE_BYTES: usize = 32;

/// The secret that signs a receipt; the first byte of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum SecretScope {
    /// Secret of this process.
    Process = 0,
    /// Secret of all servers with the same Redis and admin token.
    Shared = 1,
}

/// Signs receipts and verifies them.
///
/// - A token that another server can verify needs the same Redis, key prefix and admin token.
/// - Otherwise the secret is random, and a token is valid until the process ends.
pub(crate) struct ReceiptTokens {
    secret: [u8; 32],
    /// Key prefix of the budgets in Redis; `None` in memory.
    shared: Option<String>,
}

impl ReceiptTokens {
    /// Creates a random secret for this process.
    ///
    /// # Panics
    ///
    /// Panics if `/dev/urandom` cannot be read.
    pub(crate) fn new(store: &StoreConfig) -> ReceiptTokens {
        let mut secret = [0; 32];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut secret))
            .expect("the system gives random bytes");
        ReceiptTokens {
            secret,
            shared: store.shared_prefix().map(str::to_owned),
        }
    }

    /// Signs a receipt. A receipt of the local fallback is signed with the secret of this process, because only
    /// this process has its budget.
    pub(crate) fn sign(&self, rules: &ReloadableConfig, receipt: &Receipt) -> String {
        let shared = self.shared_secret(rules).filter(|_| !receipt.is_local());
        let (kind, secret) = match shared {
            Some(secret) => (SecretScope::Shared, secret),
            None => (SecretScope::Process, self.secret),
        };
        let mut bytes = vec![kind as u8];
        bytes.extend(receipt.to_bytes());
        bytes.extend(hmac_sha256(&secret, &bytes));
        to_hex(&bytes)
    }

    /// Verifies a token and returns its receipt.
    pub(crate) fn verify(&self, rules: &ReloadableConfig, text: &str) -> Result<Receipt, ApiError> {
        let bytes = self.verified_bytes(rules, text);
        let bytes = bytes.ok_or_else(|| ApiError::unprocessable("not a receipt of this server"))?;
        let receipt = Receipt::from_bytes(&bytes, |name| rules.policies.named(name).cloned());
        receipt.map_err(|why| match why {
            InvalidReceipt::UnknownPolicy { .. } => ApiError::gone("its policy is gone"),
            _ => ApiError::unprocessable("a receipt of another version of this server"),
        })
    }

    fn verified_bytes(&self, rules: &ReloadableConfig, text: &str) -> Option<Vec<u8>> {
        let mut bytes = from_hex(text)?;
        let (message, code) = bytes.split_last_chunk::<CODE_BYTES>()?;
        let secret = match message.first()? {
            0 => self.secret,
            1 => self.shared_secret(rules)?,
            _ => return None,
        };
        let is_ours = bool::from(hmac_sha256(&secret, message).ct_eq(code));
        is_ours.then(|| {
            bytes.truncate(bytes.len() - CODE_BYTES);
            bytes.split_off(1)
        })
    }

    /// The secret that servers with the same Redis and admin token share.
    fn shared_secret(&self, rules: &ReloadableConfig) -> Option<[u8; 32]> {
        let (token, shared) = (rules.admin.as_ref()?, self.shared.as_ref()?);
        let purpose = format!("receipts of {shared}");
        Some(AdminToken::derive(token, purpose.as_bytes()))
    }
}

impl fmt::Debug for ReceiptTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReceiptTokens")
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use ratelimit_core::{Key, Limiter, Policy, store::Hit};

    use super::*;

    fn receipt() -> Receipt {
        let policy = Policy::parse("fixed_window", "fixed_window 5/h").unwrap();
        let key = Key::new("k").unwrap();
        let reserve = Limiter::in_memory().reserve(Hit::new(&policy, &key).cost(3));
        let (_, charge) = reserve.now_or_never().unwrap();
        charge.unwrap().into_receipt()
    }

    fn tokens(shared: Option<&str>) -> ReceiptTokens {
        ReceiptTokens {
            secret: [7; 32],
            shared: shared.map(str::to_owned),
        }
    }

    #[test]
    fn only_an_unchanged_token_is_verified() {
        let (tokens, rules) = (tokens(None), ReloadableConfig::default());
        let text = tokens.sign(&rules, &receipt());

        assert_eq!(tokens.verify(&rules, &text).unwrap().cost(), 3);
        for place in 0..text.len() {
            for digit in ["0", "8", "f", "F", "g", ""] {
                let changed = [&text[..place], digit, &text[place + 1..]].concat();
                let verified = tokens.verify(&rules, &changed);
                assert_eq!(verified.is_ok(), changed == text, "{digit} at {place}");
            }
        }
        assert!(tokens.verify(&rules, &format!("{text}00")).is_err());
        assert!(tokens.verify(&rules, &text.to_uppercase()).is_err());
    }

    #[test]
    fn servers_agree_when_they_share_redis_and_token() {
        let with = |token: &str| ReloadableConfig {
            admin: Some(AdminToken::from(token)),
            ..ReloadableConfig::default()
        };
        let (ours, theirs) = (with("0123456789abcdef"), with("0123456789abcdeX"));
        let other = |shared| ReceiptTokens {
            secret: [8; 32],
            ..tokens(shared)
        };
        let text = tokens(Some("shop")).sign(&ours, &receipt());

        assert!(other(Some("shop")).verify(&ours, &text).is_ok());
        assert!(other(Some("shop")).verify(&theirs, &text).is_err());
        assert!(
            other(Some("shop"))
                .verify(&ReloadableConfig::default(), &text)
                .is_err()
        );
        assert!(other(Some("else")).verify(&ours, &text).is_err());
        assert!(other(None).verify(&ours, &text).is_err());

        let own = tokens(None).sign(&ours, &receipt());
        assert!(tokens(None).verify(&ours, &own).is_ok());
        assert!(other(None).verify(&ours, &own).is_err());
    }
}

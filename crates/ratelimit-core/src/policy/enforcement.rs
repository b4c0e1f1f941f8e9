//! Enforcement: the share of keys that a policy denies; the others are in shadow mode.

use crate::key::Key;
use crate::policy::{InvalidPolicy, Policy};

/// The share of keys, in percent, that a policy denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Enforcement {
    percent: u8,
}

impl Enforcement {
    /// Every key is enforced.
    pub(super) const FULL: Enforcement = Enforcement { percent: 100 };
    /// Shadow mode for every key.
    pub(super) const NONE: Enforcement = Enforcement { percent: 0 };

    /// `None` above 100.
    pub(super) const fn percent(percent: u8) -> Option<Enforcement> {
        if percent > 100 {
            return None;
        }
        Some(Enforcement { percent })
    }

    /// The share in percent.
    pub(super) const fn as_percent(self) -> u8 {
        self.percent
    }

    /// Whether `key` is enforced under this policy. The hash is computed only for a share between 0
    /// and 100.
    #[inline]
    pub(super) fn covers(self, policy: &str, key: &Key) -> bool {
        match self.percent {
            0 => false,
            100 => true,
            percent => share_of(policy, key) < u64::from(percent),
        }
    }
}

impl Policy {
    /// Puts the policy and its tiers into shadow mode: it decides and counts, and lets every
    /// request pass.
    ///
    /// Budgets are charged and metrics are recorded as usual. A decision that would deny has
    /// [`is_enforced`](crate::Decision::is_enforced) unset.
    ///
    /// ```
    /// use ratelimit_core::{Key, Limiter, Policy};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let (limiter, alice) = (Limiter::in_memory(), Key::new("alice")?);
    /// let watched = Policy::parse("api", "1/min")?.shadow();
    /// assert!(limiter.check(&watched, &alice).await.is_allowed());
    ///
    /// let second = limiter.check(&watched, &alice).await;
    /// assert!(second.is_allowed());
    /// assert!(!second.decision().unwrap().is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "dry run")]
    #[doc(alias = "report only")]
    #[must_use]
    pub fn shadow(&self) -> Policy {
        self.map_all_tiers(&|settings| settings.enforcement = Enforcement::NONE)
    }

    /// Enforces the policy and its tiers for `percent` of all keys; the others are in shadow mode.
    ///
    /// The choice depends on the name of the policy and on the key alone. It is the same on every
    /// instance, and a larger share contains the keys of a smaller one.
    ///
    /// ```
    /// use ratelimit_core::{Key, Policy};
    ///
    /// let api = Policy::parse("api", "10/s")?.with_enforcement(50)?;
    /// assert!(api.enforces(&Key::new("alice")?));
    /// assert!(api.with_enforcement(101).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy::Percent`] when `percent` is above 100.
    #[doc(alias = "rollout")]
    pub fn with_enforcement(&self, percent: u8) -> Result<Policy, InvalidPolicy> {
        let enforcement = Enforcement::percent(percent).ok_or(InvalidPolicy::Percent {
            percent: u32::from(percent),
        })?;
        Ok(self.map_all_tiers(&|settings| settings.enforcement = enforcement))
    }

    /// The share of keys that are enforced, in percent; 100 unless set.
    pub fn enforcement_percent(&self) -> u8 {
        self.0.settings.enforcement.as_percent()
    }

    /// Whether `key` is enforced, or in shadow mode.
    #[inline]
    pub fn enforces(&self, key: &Key) -> bool {
        self.0.settings.enforcement.covers(self.name(), key)
    }
}

/// A number from 0 to 99 that is the same for a key on every instance and in every release.
fn share_of(policy: &str, key: &Key) -> u64 {
    // FNV-1a over policy and key. Neither contains the `{` between them, so two pairs never join to
    // equal bytes.
    let bytes = policy.bytes().chain([b'{']).chain(key.as_str().bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // The low bits of FNV-1a are poor in short texts; the multiplication mixes the high bits into
    // the result.
    ((hash ^ (hash >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 100
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(policy: &str, percent: u8, keys: u32) -> Vec<u32> {
        let part = Enforcement::percent(percent).unwrap();
        let covers = |n: &u32| part.covers(policy, &Key::new(n.to_string()).unwrap());
        (0..keys).filter(covers).collect()
    }

    #[test]
    fn about_as_many_keys_are_enforced_as_asked() {
        for percent in [1, 10, 25, 50, 90, 99] {
            let share = covered("api", percent, 20_000).len();
            let wanted = usize::from(percent) * 200;
            assert!(share.abs_diff(wanted) < 300, "{share} for {percent} %");
        }
        assert_eq!(covered("api", 0, 1_000).len(), 0);
        assert_eq!(covered("api", 100, 1_000).len(), 1_000);
    }

    #[test]
    fn who_is_enforced_stays_so_when_the_share_grows() {
        let few = covered("api", 10, 5_000);
        let more = covered("api", 30, 5_000);

        assert!(few.iter().all(|key| more.contains(key)));
    }

    #[test]
    fn policies_pick_different_keys() {
        assert_ne!(covered("api", 10, 1_000), covered("login", 10, 1_000));
    }

    #[test]
    fn the_share_of_a_key_never_changes() {
        assert_eq!(share_of("api", &Key::new("alice").unwrap()), 27);
    }
}

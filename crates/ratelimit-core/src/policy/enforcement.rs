//! For which keys a policy denies, and for which it only watches.

use crate::key::Key;
use crate::policy::{InvalidPolicy, Policy};

/// So many keys out of a hundred are enforced, always the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Enforcement {
    percent: u8,
}

impl Enforcement {
    pub(super) const FULL: Enforcement = Enforcement { percent: 100 };
    pub(super) const NONE: Enforcement = Enforcement { percent: 0 };

    /// Nothing above 100.
    pub(super) const fn percent(percent: u8) -> Option<Enforcement> {
        if percent > 100 {
            return None;
        }
        Some(Enforcement { percent })
    }

    pub(super) const fn as_percent(self) -> u8 {
        self.percent
    }

    /// Whether `key` is denied what is too much.
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
    /// The same policy, which decides, counts and marks, and never denies.
    #[must_use]
    pub fn shadow(&self) -> Policy {
        self.map_all_tiers(&|settings| settings.enforcement = Enforcement::NONE)
    }

    /// The same policy, which denies `percent` of all keys what is too much, always the same ones, and
    /// only watches the others.
    ///
    /// # Errors
    ///
    /// When `percent` is more than 100.
    pub fn with_enforcement(&self, percent: u8) -> Result<Policy, InvalidPolicy> {
        let enforcement = Enforcement::percent(percent).ok_or(InvalidPolicy::Percent {
            percent: u32::from(percent),
        })?;
        Ok(self.map_all_tiers(&|settings| settings.enforcement = enforcement))
    }

    /// How many of a hundred keys are denied what is too much.
    pub fn enforcement_percent(&self) -> u8 {
        self.0.settings.enforcement.as_percent()
    }

    /// Whether `key` is denied what is too much, or only watched.
    #[inline]
    pub fn enforces(&self, key: &Key) -> bool {
        self.0.settings.enforcement.covers(self.name(), key)
    }
}

/// A number from 0 to 99 that is the same for a key on every instance and in every version.
fn share_of(policy: &str, key: &Key) -> u64 {
    // FNV-1a, with the seam that no policy's name and no key contains.
    let bytes = policy.bytes().chain([b'{']).chain(key.as_str().bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // The low bits of this hash are poor in short texts; the high ones are not.
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

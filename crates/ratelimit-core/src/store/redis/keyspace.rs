//! The names of Redis keys.

use smallvec::SmallVec;

use crate::store::redis::hash_slot::hash_slot;
use crate::{key::Key, policy::LimitGroup};

/// The Redis keys of a hit, one for each key that limits of its policy count by; nearly always one.
pub(super) type KeyNames = SmallVec<[String; 1]>;

/// The common parts of all Redis keys of a store.
#[derive(Clone, Debug)]
pub(super) struct KeySpace {
    pub(super) prefix: String,
    pub(super) version: String,
}

impl Default for KeySpace {
    fn default() -> KeySpace {
        KeySpace {
            prefix: "rate_limiter".to_owned(),
            version: "v1".to_owned(),
        }
    }
}

impl KeySpace {
    /// The Redis key of a group of limits: `rate_limiter:v1:login:{key:user:12345}`.
    ///
    /// Neither a [`Key`] nor the name of a policy contains braces, so the hash tag is always the whole key and a client
    /// cannot choose its hash slot.
    pub(super) fn key_name(&self, group: &LimitGroup, key: &Key) -> String {
        let parts = [
            &self.prefix,
            ":",
            &self.version,
            ":",
            &group.name,
            ":{",
            key.as_str(),
            "}",
        ];
        parts.concat()
    }

    /// The Redis keys of all groups, each with the key that it counts by.
    pub(super) fn key_names<'k>(
        &self,
        groups: &[LimitGroup],
        key_of: impl Fn(&LimitGroup) -> &'k Key,
    ) -> KeyNames {
        let names = groups
            .iter()
            .map(|group| self.key_name(group, key_of(group)));
        names.collect()
    }

    /// The reserved Redis key of probes, in a hash slot for which `served` is true.
    ///
    /// It collides with no other: a tilde in the name of a policy is always followed by the name of a key.
    pub(super) fn probe_key(&self, served: impl Fn(u16) -> bool) -> String {
        let KeySpace { prefix, version } = self;
        let name = |number: u32| format!("{prefix}:{version}:probe~:{{{number}}}");
        let found = (0..1 << 20).map(name).find(|name| served(hash_slot(name)));
        found.unwrap_or_else(|| name(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    #[test]
    fn a_key_is_named_as_documented() {
        let policy = Policy::parse("token_bucket", "10/s").unwrap();
        let key = Key::new("user:12345").unwrap();

        let name = KeySpace::default().key_name(&policy.groups()[0], &key);

        assert_eq!(name, "rate_limiter:v1:token_bucket:{key:user:12345}");
    }

    #[test]
    fn limits_by_another_key_are_kept_apart() {
        let policy = Policy::parse("api", "5/min; 100/min by ip").unwrap();
        let key = Key::ip([192, 0, 2, 1].into());

        let name = KeySpace::default().key_name(&policy.groups()[1], &key);

        assert_eq!(name, "rate_limiter:v1:api~ip:{ip:192.0.2.1}");
    }

    #[test]
    fn braces_chosen_by_a_client_do_not_move_the_slot() {
        let policy = Policy::parse("p", "10/s").unwrap();
        let key = Key::new("}{x").unwrap();

        let name = KeySpace::default().key_name(&policy.groups()[0], &key);

        assert_eq!(name, "rate_limiter:v1:p:{key:%7D%7Bx}");
    }
}

//! The names of Redis keys.
//!
//! | name | content |
//! |---|---|
//! | `<prefix>:<version>:<policy>:{<key>}` | the budget of a key under the limits without `by` |
//! | `<prefix>:<version>:<policy>~<by>:{<key>}` | the budget under the limits `by <by>` |
//! | `<prefix>:<version>:probe~:{<number>}` | the reserved key of probes |
//!
//! No other Redis key is read or written. Names are built here only: a script takes them in `KEYS`.

use smallvec::SmallVec;

use crate::store::redis::hash_slot::hash_slot;
use crate::{key::Key, policy::LimitGroup};

/// The Redis keys of a hit, one for each group of limits of its policy and in that order; nearly always one.
pub(super) type KeyNames = SmallVec<[String; 1]>;

/// The common parts of all Redis keys of a store.
///
/// Both parts may contain a colon, so the prefix `a:b` with the version `c` names the same keys as `a` with `b:c`.
/// Within one store two budgets never have one name: names of policies and keys contain no braces.
#[derive(Clone, Debug)]
pub(super) struct KeySpace {
    /// The first part, which separates applications on one server; 1 to 64 plain characters.
    pub(super) prefix: String,
    /// The second part, which separates generations of budgets; 1 to 64 plain characters.
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
    /// cannot choose its hash slot. The budgets of one key under all policies share a hash slot.
    pub(super) fn key_name(&self, group: &LimitGroup, key: &Key) -> String {
        // `concat` allocates once, with the exact length. This runs for each hit.
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

    /// The Redis keys of all groups, in their order, each with the key that it counts by.
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
    /// - It collides with no other: a tilde in the name of a policy is always followed by the name of a key.
    /// - On a single server any slot is served, and the number is 0. In a cluster each node has a probe key of its own.
    /// - Where no slot is served, the result is that of number 0 after a million attempts, so callers handle a node
    ///   without slots themselves.
    pub(super) fn probe_key(&self, served: impl Fn(u16) -> bool) -> String {
        let KeySpace { prefix, version } = self;
        let name = |number: u32| format!("{prefix}:{version}:probe~:{{{number}}}");
        // A node with one slot of 16,384 is found after 16,384 numbers on average; 2^20 leaves no realistic miss.
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

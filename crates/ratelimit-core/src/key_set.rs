//! Several keys of one hit, for policies whose limits count by different ones.

use compact_str::CompactString;

use crate::key::Key;

/// The keys of one hit: its own, and others by name.
///
/// ```
/// use ratelimit_core::{Key, KeySet};
///
/// let alice = Key::new("alice")?;
/// let home = Key::ip([192, 0, 2, 1].into());
/// let keys = KeySet::new(alice.clone()).with("ip", home.clone());
///
/// assert_eq!(keys.get("ip"), &home);
/// assert_eq!(keys.get("route"), &alice);
/// # Ok::<(), ratelimit_core::InvalidKey>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySet {
    own: Key,
    named: Vec<NamedKey>,
}

/// A key, and what a policy calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedKey {
    name: CompactString,
    key: Key,
}

impl NamedKey {
    pub(crate) fn new(name: &str, key: Key) -> NamedKey {
        let name = name.into();
        NamedKey { name, key }
    }
}

impl KeySet {
    /// Only the hit's own key.
    pub const fn new(own: Key) -> KeySet {
        let named = Vec::new();
        KeySet { own, named }
    }

    /// The same with one more key, for the limits that count by `name`.
    #[must_use]
    pub fn with(mut self, name: &str, key: Key) -> KeySet {
        self.named.retain(|known| known.name != name);
        self.named.push(NamedKey::new(name, key));
        self
    }

    /// The hit's own key.
    pub const fn primary(&self) -> &Key {
        &self.own
    }

    /// The key of that name; the hit's own where none is given.
    pub fn get(&self, name: &str) -> &Key {
        find(&self.named, name).unwrap_or(&self.own)
    }

    pub(crate) fn named(&self) -> &[NamedKey] {
        &self.named
    }

    pub(crate) fn of(own: &Key, others: &[NamedKey]) -> KeySet {
        KeySet {
            own: own.clone(),
            named: others.to_vec(),
        }
    }
}

pub(crate) fn find<'a>(keys: &'a [NamedKey], name: &str) -> Option<&'a Key> {
    let found = keys.iter().find(|known| known.name == name);
    found.map(|known| &known.key)
}

impl From<Key> for KeySet {
    fn from(own: Key) -> KeySet {
        KeySet::new(own)
    }
}

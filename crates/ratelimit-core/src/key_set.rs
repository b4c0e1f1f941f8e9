//! The keys of one hit, for policies whose limits count by different keys.

use compact_str::CompactString;

use crate::key::Key;

/// The keys of one hit: the primary one, and others by name.
///
/// A limit that ends with `by NAME` counts by the key of that name, every other limit by the
/// primary key. [`Limiter::check_keys`](crate::Limiter::check_keys) decides all of them together.
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeySet {
    /// The primary key, which tiers and enforcement depend on.
    own: Key,
    /// The other keys; each name once.
    named: Vec<NamedKey>,
}

/// A key with the name that limits use for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NamedKey {
    name: CompactString,
    key: Key,
}

impl NamedKey {
    /// Pairs a name with a key; the name is not checked, because an unknown one selects nothing.
    pub(crate) fn new(name: &str, key: Key) -> NamedKey {
        let name = name.into();
        NamedKey { name, key }
    }
}

impl KeySet {
    /// Only the primary key.
    pub const fn new(own: Key) -> KeySet {
        let named = Vec::new();
        KeySet { own, named }
    }

    /// Adds a key for the limits that count by `name`, or replaces the one of that name.
    #[must_use]
    pub fn with(mut self, name: &str, key: Key) -> KeySet {
        // A name occurs once: `find` returns the first match.
        self.named.retain(|known| known.name != name);
        self.named.push(NamedKey::new(name, key));
        self
    }

    /// The primary key of the hit.
    pub const fn primary(&self) -> &Key {
        &self.own
    }

    /// The key of that name; the primary key if there is none.
    ///
    /// A limit whose key is missing therefore counts by the primary key instead of failing.
    pub fn get(&self, name: &str) -> &Key {
        find(&self.named, name).unwrap_or(&self.own)
    }

    /// The keys with names.
    pub(crate) fn named(&self) -> &[NamedKey] {
        &self.named
    }

    /// An owned set from the borrowed keys of a hit.
    pub(crate) fn of(own: &Key, others: &[NamedKey]) -> KeySet {
        KeySet {
            own: own.clone(),
            named: others.to_vec(),
        }
    }
}

/// The key of that name.
pub(crate) fn find<'a>(keys: &'a [NamedKey], name: &str) -> Option<&'a Key> {
    let found = keys.iter().find(|known| known.name == name);
    found.map(|known| &known.key)
}

impl From<Key> for KeySet {
    fn from(own: Key) -> KeySet {
        KeySet::new(own)
    }
}

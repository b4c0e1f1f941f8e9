//! Several keys of one hit, for policies whose limits count by different ones.

use compact_str::CompactString;

use crate::key::Key;

/// The keys of one hit: its own, and others by name.
///
/// ```
/// use ratelimit_core::{Key, Keys};
///
/// let alice = Key::explicit("alice")?;
/// let home = Key::ip([192, 0, 2, 1].into());
/// let keys = Keys::new(alice.clone()).by("ip", home.clone());
///
/// assert_eq!(keys.named("ip"), &home);
/// assert_eq!(keys.named("route"), &alice);
/// # Ok::<(), ratelimit_core::InvalidKey>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
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

impl Keys {
    /// Only the hit's own key.
    pub const fn new(own: Key) -> Keys {
        let named = Vec::new();
        Keys { own, named }
    }

    /// The same with one more key, for the limits that count by `name`.
    #[must_use]
    pub fn by(mut self, name: &str, key: Key) -> Keys {
        self.named.retain(|known| known.name != name);
        self.named.push(NamedKey::new(name, key));
        self
    }

    /// The hit's own key.
    pub const fn own(&self) -> &Key {
        &self.own
    }

    /// The key of that name; the hit's own where none is given.
    pub fn named(&self, name: &str) -> &Key {
        find(&self.named, name).unwrap_or(&self.own)
    }

    pub(crate) fn others(&self) -> &[NamedKey] {
        &self.named
    }

    pub(crate) fn of(own: &Key, others: &[NamedKey]) -> Keys {
        Keys {
            own: own.clone(),
            named: others.to_vec(),
        }
    }
}

pub(crate) fn find<'a>(keys: &'a [NamedKey], name: &str) -> Option<&'a Key> {
    let found = keys.iter().find(|known| known.name == name);
    found.map(|known| &known.key)
}

impl From<Key> for Keys {
    fn from(own: Key) -> Keys {
        Keys::new(own)
    }
}

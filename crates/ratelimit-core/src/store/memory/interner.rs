//! Interned policy names: each name is stored once for each shard.
//!
//! An entry refers to its name by a 4-byte index in place of a 16-byte `Arc<str>` and a reference count that all
//! threads would write.

use std::sync::Arc;

use crate::policy::LimitGroup;

/// The names of the limit groups in one shard; entries refer to them by index.
///
/// - A name counts its entries. The slot of a name without entries is reused for the next new name.
/// - [`intern`](Interner::intern) searches linearly: a shard has as many names as there are policies in use.
#[derive(Debug, Default)]
pub(super) struct Interner(Vec<InternedName>);

/// The index of a name in its shard's [`Interner`]; valid while an entry holds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameId(u32);

/// One name, and the number of entries that refer to it.
#[derive(Debug)]
struct InternedName {
    text: Arc<str>,
    /// Entries with this name; 0 means that the slot can be reused.
    entries: u32,
}

impl Interner {
    /// Returns the index of the group's name, and counts one more entry for it.
    pub(super) fn intern(&mut self, group: &LimitGroup) -> NameId {
        // Only inserts come here; a hit on a known key compares one name.
        let known = self.0.iter().position(|name| name.matches(group));
        let index = known.unwrap_or_else(|| self.add(group));
        self.0[index].entries += 1;
        NameId(u32::try_from(index).expect("a shard has fewer names than entries"))
    }

    /// Adds a name in the slot of an unused name, or at the end.
    ///
    /// Reloads and renamed policies therefore do not make the list grow without bound.
    fn add(&mut self, group: &LimitGroup) -> usize {
        let name = InternedName {
            text: Arc::clone(&group.name),
            entries: 0,
        };
        let unused = self.0.iter().position(|name| name.entries == 0);
        if let Some(unused) = unused {
            self.0[unused] = name;
            return unused;
        }
        self.0.push(name);
        self.0.len() - 1
    }

    /// Counts one entry less for the name. Call it exactly once for each removed entry.
    pub(super) fn release(&mut self, id: NameId) {
        self.0[id.0 as usize].entries -= 1;
    }

    /// Whether `id` is the name of `group`.
    #[inline]
    pub(super) fn matches(&self, id: NameId, group: &LimitGroup) -> bool {
        self.0[id.0 as usize].matches(group)
    }
}

impl InternedName {
    /// Compares pointers first: hits under one policy share its name, so the texts are compared only after a reload.
    #[inline]
    fn matches(&self, group: &LimitGroup) -> bool {
        Arc::ptr_eq(&self.text, &group.name) || self.text == group.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    fn named(name: &str) -> Policy {
        Policy::parse(name, "1/s").unwrap()
    }

    #[test]
    fn a_name_is_kept_once_and_its_index_is_used_again() {
        let mut names = Interner::default();
        let (api, same, login) = (named("api"), named("api"), named("login"));
        let [api, same, login] = [&api, &same, &login].map(|policy| &policy.groups()[0]);

        let id = names.intern(api);
        assert!(names.matches(id, same) && !names.matches(id, login));
        assert_eq!(names.intern(same).0, id.0);
        assert_ne!(names.intern(login).0, id.0);

        names.release(id);
        names.release(id);
        let other = named("other");
        assert_eq!(names.intern(&other.groups()[0]).0, id.0);
        assert_eq!(names.0.len(), 2);
    }
}

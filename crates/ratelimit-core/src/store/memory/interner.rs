//! Interned policy names: each name of a shard is stored once.

use std::sync::Arc;

use crate::policy::LimitGroup;

/// The names of a shard's groups of limits; entries refer to them by index.
#[derive(Debug, Default)]
pub(super) struct Interner(Vec<InternedName>);

/// The index of a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameId(u32);

#[derive(Debug)]
struct InternedName {
    text: Arc<str>,
    entries: u32,
}

impl Interner {
    /// The index of a group's name, for one entry more.
    pub(super) fn intern(&mut self, group: &LimitGroup) -> NameId {
        let known = self.0.iter().position(|name| name.matches(group));
        let index = known.unwrap_or_else(|| self.add(group));
        self.0[index].entries += 1;
        NameId(u32::try_from(index).expect("a shard has fewer names than entries"))
    }

    /// Adds a name at the index of one that no entry has any more, or at the end.
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

    /// Says that an entry with the name is gone.
    pub(super) fn release(&mut self, id: NameId) {
        self.0[id.0 as usize].entries -= 1;
    }

    #[inline]
    pub(super) fn matches(&self, id: NameId, group: &LimitGroup) -> bool {
        self.0[id.0 as usize].matches(group)
    }
}

impl InternedName {
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

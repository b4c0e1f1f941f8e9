//! Interned policy names: each name of a shard is stored once.

use std::sync::Arc;

use crate::policy::Group;

/// The names of a shard's groups of limits; entries refer to them by index.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<Name>);

/// The index of a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameId(u32);

#[derive(Debug)]
struct Name {
    text: Arc<str>,
    entries: u32,
}

impl Names {
    /// The index of a group's name, for one entry more.
    pub(super) fn enter(&mut self, group: &Group) -> NameId {
        let known = self.0.iter().position(|name| name.is_of(group));
        let index = known.unwrap_or_else(|| self.add(group));
        self.0[index].entries += 1;
        NameId(u32::try_from(index).expect("a shard has fewer names than entries"))
    }

    /// Adds a name at the index of one that no entry has any more, or at the end.
    fn add(&mut self, group: &Group) -> usize {
        let name = Name {
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
    pub(super) fn leave(&mut self, id: NameId) {
        self.0[id.0 as usize].entries -= 1;
    }

    #[inline]
    pub(super) fn is_of(&self, id: NameId, group: &Group) -> bool {
        self.0[id.0 as usize].is_of(group)
    }
}

impl Name {
    #[inline]
    fn is_of(&self, group: &Group) -> bool {
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
        let mut names = Names::default();
        let (api, same, login) = (named("api"), named("api"), named("login"));
        let [api, same, login] = [&api, &same, &login].map(|policy| &policy.groups()[0]);

        let id = names.enter(api);
        assert!(names.is_of(id, same) && !names.is_of(id, login));
        assert_eq!(names.enter(same).0, id.0);
        assert_ne!(names.enter(login).0, id.0);

        names.leave(id);
        names.leave(id);
        let other = named("other");
        assert_eq!(names.enter(&other.groups()[0]).0, id.0);
        assert_eq!(names.0.len(), 2);
    }
}

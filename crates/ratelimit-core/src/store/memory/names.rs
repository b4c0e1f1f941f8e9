//! The names under which the budgets of a shard are kept, each stored once.

use std::sync::Arc;

use crate::policy::Group;

/// The names of a shard; keys refer to them by a number.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<Name>);

/// A name's number.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameId(u32);

#[derive(Debug)]
struct Name {
    text: Arc<str>,
    hash: u64,
    keys: u32,
}

impl Name {
    fn is_of(&self, group: &Group) -> bool {
        Arc::ptr_eq(&self.text, &group.name)
            || (self.hash == group.name_hash && self.text == group.name)
    }
}

impl Names {
    /// The number of a group's name, for one key more.
    pub(super) fn enter(&mut self, group: &Group) -> NameId {
        let known = self.0.iter().position(|name| name.is_of(group));
        let place = known.unwrap_or_else(|| self.add(group));
        self.0[place].keys += 1;
        NameId(u32::try_from(place).expect("a shard has fewer names than keys"))
    }

    /// A place for a new name: that of one which no key has any more, or the next.
    fn add(&mut self, group: &Group) -> usize {
        let name = Name {
            text: Arc::clone(&group.name),
            hash: group.name_hash,
            keys: 0,
        };
        let unused = self.0.iter().position(|name| name.keys == 0);
        if let Some(unused) = unused {
            self.0[unused] = name;
            return unused;
        }
        self.0.push(name);
        self.0.len() - 1
    }

    /// Says that a key which had the name is gone.
    pub(super) fn leave(&mut self, id: NameId) {
        self.0[id.0 as usize].keys -= 1;
    }

    #[inline]
    pub(super) fn is_of(&self, id: NameId, group: &Group) -> bool {
        self.0[id.0 as usize].is_of(group)
    }

    pub(super) fn hash(&self, id: NameId) -> u64 {
        self.0[id.0 as usize].hash
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
    fn a_name_is_kept_once_and_its_place_is_used_again() {
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

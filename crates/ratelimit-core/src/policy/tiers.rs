//! Limits that differ from key to key: tiers, and who is in which.

use std::{fmt, sync::Arc};

use super::Policy;
use crate::key::Key;

/// Says in which tier a key is; nothing for the policy's own limits.
type Resolver = Arc<dyn Fn(&Key) -> Option<String> + Send + Sync>;

/// The tiers of a policy, and who is in which.
#[derive(Clone, Default)]
pub(super) struct Tiers {
    tiers: Vec<(Arc<str>, Policy)>,
    resolver: Option<Resolver>,
}

impl Tiers {
    pub(super) fn add(&mut self, name: &str, policy: Policy) {
        self.tiers.retain(|(known, _)| **known != *name);
        self.tiers.push((name.into(), policy));
    }

    pub(super) fn resolve_by(&mut self, resolver: Resolver) {
        self.resolver = Some(resolver);
    }

    pub(super) fn find(&self, name: &str) -> Option<&Policy> {
        let found = self.tiers.iter().find(|(known, _)| **known == *name);
        found.map(|(_, policy)| policy)
    }

    pub(super) fn of(&self, key: &Key) -> Option<&Policy> {
        let tier = self.resolver.as_ref()?(key)?;
        self.find(&tier)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Policy)> {
        self.tiers.iter().map(|(name, policy)| (&**name, policy))
    }

    pub(super) fn policies(&mut self) -> impl Iterator<Item = &mut Policy> {
        self.tiers.iter_mut().map(|(_, policy)| policy)
    }
}

impl PartialEq for Tiers {
    fn eq(&self, other: &Tiers) -> bool {
        let same_resolver = match (&self.resolver, &other.resolver) {
            (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs),
            (None, None) => true,
            _ => false,
        };
        same_resolver && self.tiers == other.tiers
    }
}

impl fmt::Debug for Tiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

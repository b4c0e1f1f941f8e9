//! Limits that differ from key to key: tiers, and who is in which.

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::key::Key;
use crate::policy::{InvalidPolicy, Policy, PolicySettings};

/// The tiers of a policy, and who is in which.
#[derive(Clone, Default)]
pub(super) struct Tiers {
    tiers: Vec<(Arc<str>, Policy)>,
    members: Members,
}

/// Who is in which tier; all others have the policy's own limits.
#[derive(Clone, Default)]
enum Members {
    #[default]
    Nobody,
    Listed(BTreeMap<Key, Arc<str>>),
    Resolved(Arc<Resolver>),
}

/// Says in which tier a key is.
type Resolver = dyn Fn(&Key) -> Option<String> + Send + Sync;

impl Tiers {
    pub(super) fn add(&mut self, name: &str, policy: Policy) {
        self.tiers.retain(|(known, _)| **known != *name);
        self.tiers.push((name.into(), policy));
    }

    pub(super) fn find(&self, name: &str) -> Option<&Policy> {
        let found = self.tiers.iter().find(|(known, _)| **known == *name);
        found.map(|(_, policy)| policy)
    }

    #[inline]
    pub(super) fn of(&self, key: &Key) -> Option<&Policy> {
        match &self.members {
            Members::Nobody => None,
            members => self.find_of(members, key),
        }
    }

    #[inline(never)]
    fn find_of(&self, members: &Members, key: &Key) -> Option<&Policy> {
        match members {
            Members::Nobody => None,
            Members::Listed(tiers) => self.find(tiers.get(key)?),
            Members::Resolved(resolver) => self.find(&resolver(key)?),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Policy)> {
        self.tiers.iter().map(|(name, policy)| (&**name, policy))
    }

    pub(super) fn policies(&mut self) -> impl Iterator<Item = &mut Policy> {
        self.tiers.iter_mut().map(|(_, policy)| policy)
    }
}

impl Policy {
    /// The same policy with other limits for the keys in the tier `name`; all else is the policy's.
    ///
    /// What a key has spent stays when it changes tiers, as it does when limits change.
    ///
    /// ```
    /// use ratelimit_core::{Key, Policy};
    ///
    /// let api = Policy::parse("api", "10/min")?
    ///     .with_tier("pro", "1000/min")?
    ///     .with_tier_resolver(|key| key.as_str().ends_with("acme").then(|| "pro".to_owned()));
    ///
    /// assert_eq!(api.for_key(&Key::new("acme")?).limits()[0].capacity(), 1000);
    /// assert_eq!(api.for_key(&Key::new("else")?).limits()[0].capacity(), 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Policy::parse`].
    pub fn with_tier(&self, name: &str, limits: &str) -> Result<Policy, InvalidPolicy> {
        let parsed = Policy::parse(self.name(), limits)?;
        let tier = Policy::from_settings(PolicySettings {
            tiers: Tiers::default(),
            limits: parsed.0.settings.limits.clone(),
            keys: parsed.0.settings.keys.clone(),
            ..self.0.settings.clone()
        })?;
        Ok(self.map_settings(|settings| settings.tiers.add(name, tier)))
    }

    /// The same policy, with `resolver` to say in which tier a key is.
    ///
    /// Nothing, or a tier that there is not, means the policy's own limits.
    #[must_use]
    pub fn with_tier_resolver(
        &self,
        resolver: impl Fn(&Key) -> Option<String> + Send + Sync + 'static,
    ) -> Policy {
        let resolver = Arc::new(resolver);
        self.map_settings(|settings| settings.tiers.members = Members::Resolved(resolver))
    }

    /// The same policy with these keys in these tiers, and no others in any.
    ///
    /// A tier that there is not means the policy's own limits.
    ///
    /// ```
    /// use ratelimit_core::{Key, Policy};
    ///
    /// let acme = Key::new("acme")?;
    /// let api = Policy::parse("api", "10/min")?.with_tier("pro", "1000/min")?;
    /// let api = api.with_tier_members([(acme.clone(), "pro")]);
    ///
    /// assert_eq!(api.for_key(&acme).limits()[0].capacity(), 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_tier_members<T: AsRef<str>>(
        &self,
        tenants: impl IntoIterator<Item = (Key, T)>,
    ) -> Policy {
        let tenants = tenants.into_iter();
        let listed = tenants.map(|(key, tier)| (key, tier.as_ref().into()));
        let listed = listed.collect();
        self.map_settings(|settings| settings.tiers.members = Members::Listed(listed))
    }

    /// The tiers by name, each with its limits.
    pub fn tiers(&self) -> impl Iterator<Item = (&str, &Policy)> {
        self.0.settings.tiers.iter()
    }

    /// The policy of the tier `name`; this one where there is no such tier.
    pub fn tier(&self, name: &str) -> &Policy {
        self.0.settings.tiers.find(name).unwrap_or(self)
    }

    /// The policy of the tier that `key` is in.
    #[inline]
    pub fn for_key(&self, key: &Key) -> &Policy {
        self.0.settings.tiers.of(key).unwrap_or(self)
    }
}

impl PartialEq for Tiers {
    fn eq(&self, other: &Tiers) -> bool {
        self.members == other.members && self.tiers == other.tiers
    }
}

impl PartialEq for Members {
    fn eq(&self, other: &Members) -> bool {
        match (self, other) {
            (Members::Nobody, Members::Nobody) => true,
            (Members::Listed(ours), Members::Listed(theirs)) => ours == theirs,
            (Members::Resolved(ours), Members::Resolved(theirs)) => Arc::ptr_eq(ours, theirs),
            _ => false,
        }
    }
}

impl fmt::Debug for Tiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

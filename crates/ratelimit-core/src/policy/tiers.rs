//! Tiers: other limits for some keys of a policy.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::key::Key;
use crate::policy::{InvalidPolicy, Policy, PolicySettings};

/// The tiers of a policy and the assignment of keys to them.
#[derive(Clone, Default)]
pub(super) struct Tiers {
    /// Each tier is a whole policy with the name and the settings of its parent and limits of its
    /// own.
    named: Vec<(Arc<str>, Policy)>,
    /// The place of each tier in `named`: a check of one of thousands of tiers is not a search.
    places: BTreeMap<Arc<str>, usize>,
    /// Which key is in which tier.
    members: Members,
    /// Whether an unknown tier was logged.
    logged_unknown: Arc<AtomicBool>,
}

/// The assignment of keys to tiers. A key without a tier has the limits of the policy itself.
#[derive(Clone, Default)]
enum Members {
    /// No key is in a tier.
    #[default]
    None,
    /// A fixed list.
    Listed(BTreeMap<Key, Arc<str>>),
    /// A function of the application.
    Resolved(Arc<Resolver>),
}

/// Returns the name of the tier of a key.
type Resolver = dyn Fn(&Key) -> Option<String> + Send + Sync;

impl Tiers {
    /// Adds a tier, or replaces the one of that name.
    pub(super) fn add(&mut self, name: &str, policy: Policy) {
        if let Some(place) = self.places.remove(name) {
            self.named.remove(place);
            for (place, (name, _)) in self.named.iter().enumerate().skip(place) {
                self.places.insert(Arc::clone(name), place);
            }
        }
        let name: Arc<str> = name.into();
        self.places.insert(Arc::clone(&name), self.named.len());
        self.named.push((name, policy));
    }

    /// The tier of that name.
    pub(super) fn find(&self, name: &str) -> Option<&Policy> {
        let place = *self.places.get(name)?;
        self.named.get(place).map(|(_, policy)| policy)
    }

    /// The tier of a key. Inlined for policies without members, which is nearly all of them.
    #[inline]
    pub(super) fn of(&self, key: &Key, policy: &str) -> Option<&Policy> {
        match &self.members {
            // Fast path of policies without tiers: no lookup, and no call of a resolver.
            Members::None => None,
            members => self.find_of(members, key, policy),
        }
    }

    /// Looks the key up, out of line.
    #[inline(never)]
    fn find_of(&self, members: &Members, key: &Key, policy: &str) -> Option<&Policy> {
        match members {
            Members::None => None,
            Members::Listed(tiers) => self.find_or_log(tiers.get(key)?, policy),
            Members::Resolved(resolver) => self.find_or_log(&resolver(key)?, policy),
        }
    }

    /// The tier of that name. The first that does not exist is logged.
    fn find_or_log(&self, name: &str, policy: &str) -> Option<&Policy> {
        let found = self.find(name);
        if found.is_none() && !self.logged_unknown.swap(true, Ordering::Relaxed) {
            let known: Vec<&str> = self.iter().map(|(name, _)| name).collect();
            tracing::warn!(
                policy,
                "there is no tier {name:?} among {known:?}: its keys have the policy's own limits"
            );
        }
        found
    }

    /// The tiers in the order in which they were added.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Policy)> {
        self.named.iter().map(|(name, policy)| (&**name, policy))
    }

    /// The tiers for a change in place.
    pub(super) fn policies(&mut self) -> impl Iterator<Item = &mut Policy> {
        self.named.iter_mut().map(|(_, policy)| policy)
    }
}

impl Policy {
    /// Adds a tier: other limits for some keys, with all other settings of this policy.
    ///
    /// - Assign keys with [`with_tier_members`](Policy::with_tier_members) or
    ///   [`with_tier_resolver`](Policy::with_tier_resolver).
    /// - A tier shares the stored budgets of its policy. A key that changes tiers keeps what it has
    ///   spent, as with changed limits; a limit at the same position should have the same algorithm
    ///   in every tier.
    /// - Settings that are changed later change in the tiers as well.
    ///
    /// ```
    /// use ratelimit_core::{Key, Policy};
    ///
    /// let api = Policy::parse("api", "10/min")?
    ///     .with_tier("pro", "1000/min")?
    ///     .with_tier_resolver(|key| (key.as_str() == "customer:acme").then(|| "pro".to_owned()));
    ///
    /// assert_eq!(api.for_key(&Key::tagged("customer", "acme")?).limits()[0].capacity(), 1000);
    /// assert_eq!(api.for_key(&Key::tagged("customer", "notacme")?).limits()[0].capacity(), 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Policy::parse`], and [`InvalidPolicy::Cost`] or [`InvalidPolicy::Ceiling`] when
    /// the limits do not fit the cost or the throttle of this policy.
    #[doc(alias = "plan")]
    pub fn with_tier(&self, name: &str, limits: &str) -> Result<Policy, InvalidPolicy> {
        self.with_tiers([(name, limits)])
    }

    /// Adds several tiers, as [`with_tier`](Policy::with_tier) adds each: names and texts of limits.
    ///
    /// The policy is copied once, and not once for each tier.
    ///
    /// ```
    /// use ratelimit_core::Policy;
    ///
    /// let api = Policy::parse("api", "10/min")?
    ///     .with_tiers([("pro", "1000/min"), ("enterprise", "100000/min")])?;
    ///
    /// assert_eq!(api.tiers().count(), 2);
    /// # Ok::<(), ratelimit_core::InvalidPolicy>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`with_tier`](Policy::with_tier), for the first tier that has one. No tier is added then.
    pub fn with_tiers<N: AsRef<str>, L: AsRef<str>>(
        &self,
        tiers: impl IntoIterator<Item = (N, L)>,
    ) -> Result<Policy, InvalidPolicy> {
        let of_tiers = self.map_settings(|settings| settings.tiers = Tiers::default());
        let tiers = tiers.into_iter().map(|(name, limits)| {
            // The tier has the name of the policy, and so its stored budgets.
            let parsed = Policy::parse(self.name(), limits.as_ref())?;
            let tier = Policy::from_settings(PolicySettings {
                limits: parsed.0.settings.limits.clone(),
                keys: parsed.0.settings.keys.clone(),
                ..of_tiers.0.settings.clone()
            })?;
            Ok((name, tier))
        });
        let tiers: Vec<(N, Policy)> = tiers.collect::<Result<_, InvalidPolicy>>()?;
        Ok(self.map_settings(|settings| {
            for (name, tier) in tiers {
                settings.tiers.add(name.as_ref(), tier);
            }
        }))
    }

    /// Assigns keys to tiers with a function, in place of any earlier assignment.
    ///
    /// - `None`, or the name of a tier that does not exist, means the limits of this policy. The first name that
    ///   does not exist is logged.
    /// - The function runs on every check, so it must be fast and must not block.
    #[must_use]
    pub fn with_tier_resolver(
        &self,
        resolver: impl Fn(&Key) -> Option<String> + Send + Sync + 'static,
    ) -> Policy {
        let resolver = Arc::new(resolver);
        self.map_settings(|settings| settings.tiers.members = Members::Resolved(resolver))
    }

    /// Assigns these keys to tiers, in place of any earlier assignment.
    ///
    /// The name of a tier that does not exist means the limits of this policy. The first is logged.
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

    /// The keys that [`with_tier_members`](Policy::with_tier_members) lists, in their order.
    pub fn tier_members(&self) -> impl Iterator<Item = &Key> {
        let members = match &self.0.settings.tiers.members {
            Members::Listed(listed) => Some(listed.keys()),
            Members::None | Members::Resolved(_) => None,
        };
        members.into_iter().flatten()
    }

    /// The tiers with their names, in the order in which they were added.
    pub fn tiers(&self) -> impl Iterator<Item = (&str, &Policy)> {
        self.0.settings.tiers.iter()
    }

    /// The tier of that name; this policy if there is none, which is logged once.
    pub fn tier(&self, name: &str) -> &Policy {
        let tiers = &self.0.settings.tiers;
        tiers.find_or_log(name, self.name()).unwrap_or(self)
    }

    /// The tier that `key` is in; this policy if it is in none.
    ///
    /// [`Limiter::check`](crate::Limiter::check) calls it. Code that builds a [`Hit`](crate::store::Hit)
    /// itself calls it first.
    #[inline]
    pub fn for_key(&self, key: &Key) -> &Policy {
        self.0.settings.tiers.of(key, self.name()).unwrap_or(self)
    }
}

impl PartialEq for Tiers {
    /// Resolvers are equal when they are clones of one.
    fn eq(&self, other: &Tiers) -> bool {
        self.members == other.members && self.named == other.named
    }
}

impl PartialEq for Members {
    fn eq(&self, other: &Members) -> bool {
        match (self, other) {
            (Members::None, Members::None) => true,
            (Members::Listed(ours), Members::Listed(theirs)) => ours == theirs,
            (Members::Resolved(ours), Members::Resolved(theirs)) => Arc::ptr_eq(ours, theirs),
            _ => false,
        }
    }
}

impl fmt::Debug for Tiers {
    /// Shows the tiers without the assignment: a resolver has no printable form, and a list may be
    /// long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

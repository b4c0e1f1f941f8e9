//! Policies of one name with different limits.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Mutex,
};

use crate::{limiter::Limiter, policy::Policy, sync::lock};

/// The number of names that are compared. Policies beyond it cause no warning.
const MAX_NAMES: usize = 1_000;

/// The limits of each policy that was announced, by name.
#[derive(Default)]
pub(super) struct PolicyNames(Mutex<BTreeMap<Box<str>, AnnouncedPolicy>>);

/// The limits of a policy, and whether others of the same name were logged.
struct AnnouncedPolicy {
    limits: String,
    is_logged: bool,
}

impl Limiter {
    /// Logs one warning when a policy of the same name was announced with other limits.
    ///
    /// A policy that asks for prefetched units where there are none causes a warning as well.
    ///
    /// Budgets are stored by the name of their policy, so both spend one budget. Adapters announce the
    /// policy of each layer and handler.
    pub fn announce_policy(&self, policy: &Policy) {
        if policy.prefetch().is_some() {
            self.shared.prefetch.announce(policy);
        }
        let limits = policy.to_string();
        let mut names = lock(&self.shared.policy_names.0);
        let has_room = names.len() < MAX_NAMES;
        match names.entry(policy.name().into()) {
            Entry::Vacant(entry) if has_room => {
                let is_logged = false;
                entry.insert(AnnouncedPolicy { limits, is_logged });
            }
            Entry::Vacant(_) => {}
            Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                if known.limits != limits && !known.is_logged {
                    known.is_logged = true;
                    tracing::warn!(
                        policy = policy.name(),
                        "two policies of one name have different limits, and spend one budget: \
                         {} and {limits}; give one of them another name or scope",
                        known.limits
                    );
                }
            }
        }
    }
}

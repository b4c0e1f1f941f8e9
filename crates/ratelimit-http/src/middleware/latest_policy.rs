//! The latest policy of a layer that follows a registry.

use std::sync::{Arc, PoisonError};

use crate::{
    framework::Framework,
    middleware::config::{Config, RegistryLookup},
};

impl<F: Framework> Config<F> {
    /// The settings for the next request: with the registry's latest policy if they follow a registry.
    ///
    /// It costs one atomic load while the registry does not change.
    #[inline]
    pub fn current(self: &Arc<Self>) -> Arc<Config<F>> {
        match &self.lookup {
            Some(lookup) => self.with_latest_policy(lookup),
            None => Arc::clone(self),
        }
    }

    /// The settings with the registry's latest policy, which are made once per version.
    ///
    /// The previous policy stays if the registry has none of this name, or one that counts by a key that the
    /// layer does not know. The latter is logged.
    fn with_latest_policy(&self, lookup: &RegistryLookup<F>) -> Arc<Config<F>> {
        let version = lookup.registry.version();
        let latest = lookup.latest.read();
        let latest = latest.unwrap_or_else(PoisonError::into_inner);
        let last_policy = match &*latest {
            Some((seen, config)) if *seen == version => return Arc::clone(config),
            Some((_, config)) => config.policy.clone(),
            None => self.policy.clone(),
        };
        drop(latest);
        let policy = lookup.registry.get(self.policy.name());
        let mut config = self.with_policy(policy.unwrap_or_else(|| last_policy.clone()));
        if let Err(unknown) = config.check_key_names() {
            self.log_error(format_args!(
                "{unknown}; the policy before it stays in force"
            ));
            config = self.with_policy(last_policy);
        }
        let config = Arc::new(config);
        config.log_unmatched_keys();
        let latest = lookup.latest.write();
        let mut latest = latest.unwrap_or_else(PoisonError::into_inner);
        *latest = Some((version, Arc::clone(&config)));
        config
    }
}

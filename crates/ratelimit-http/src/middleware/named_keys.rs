//! Keys that limits count by under a name, as in `100/min by ip`.

use std::sync::Arc;

use ratelimit_core::{Key, KeySet, Policy};

use crate::client_ip::HeaderLines as _;
use crate::{
    framework::Framework,
    key::{HeaderKey, KeyError, UnknownKeyName},
    middleware::config::Config,
};

/// The client's address.
const IP: &str = "ip";
/// Adapters of frameworks with routes name this key; elsewhere it is unknown.
const ROUTE: &str = "route";
/// One budget for all requests.
const GLOBAL: &str = "global";
/// The value of a header.
const HEADER: &str = "header:";

impl<F: Framework> Config<F> {
    /// Sets the function that finds the key called `name`, for limits that count by it.
    ///
    /// It replaces an earlier key of that name, and the built-in ones.
    pub fn named_key(
        &mut self,
        name: &str,
        key: impl Fn(&F::Request) -> Result<Key, KeyError> + Send + Sync + 'static,
    ) {
        self.named_keys.retain(|(known, _)| **known != *name);
        self.named_keys.push((name.into(), Arc::new(key)));
    }

    /// Checks that every name that a limit counts by is known, in all tiers.
    ///
    /// # Errors
    ///
    /// [`UnknownKeyName`] for the first that is not.
    pub fn check_key_names(&self) -> Result<(), UnknownKeyName> {
        let base = self.policy.policy();
        let tiers = base.tiers().map(|(_, tier)| tier);
        let policies = std::iter::once(base).chain(tiers);
        let mut names = policies.flat_map(Policy::key_names);
        match names.find(|name| !self.has_key(name)) {
            Some(unknown) => Err(self.unknown(unknown)),
            None => Ok(()),
        }
    }

    /// Whether the layer has a key of this name, or it is built in.
    fn has_key(&self, name: &str) -> bool {
        let is_given = self.named_keys.iter().any(|(known, _)| **known == *name);
        is_given || [IP, GLOBAL].contains(&name) || name.starts_with(HEADER)
    }

    /// The error for a name that is not known.
    pub(crate) fn unknown(&self, name: &str) -> UnknownKeyName {
        UnknownKeyName {
            policy: self.policy.name().to_owned(),
            name: name.to_owned(),
        }
    }

    /// The keys of all names that the limits of `policy` count by.
    ///
    /// A missing key is left out: the engine counts by the request's main key instead.
    #[inline]
    pub(crate) fn keys(
        &self,
        request: &F::Request,
        main: Key,
        policy: &Policy,
    ) -> Result<KeySet, KeyError> {
        let mut keys = KeySet::new(main);
        for name in policy.key_names() {
            match self.key_of_name(request, name) {
                Ok(key) => keys = keys.with(name, key),
                Err(KeyError::Missing) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(keys)
    }

    /// The key of a request for one name.
    fn key_of_name(&self, request: &F::Request, name: &str) -> Result<Key, KeyError> {
        let given = self.named_keys.iter().find(|(known, _)| **known == *name);
        if let Some((_, key)) = given {
            return key(request);
        }
        if name == IP {
            return (self.client_address)(request).map(|client| client.key);
        }
        if name == ROUTE {
            return Err(KeyError::Missing);
        }
        if name == GLOBAL {
            return Ok(Key::tagged(GLOBAL, "all")?);
        }
        let Some(header) = name.strip_prefix(HEADER) else {
            self.log_unknown_key_once(name);
            return Err(KeyError::UnknownName);
        };
        let header = HeaderKey::new(header.to_ascii_lowercase());
        header.extract_key(F::head(request).lines(header.name()))
    }
}

//! The keys that limits count by beside the request's own, each by its name.

use std::{error, fmt, net::IpAddr, sync::Arc};

use crate::client_ip::HeaderLines as _;
use crate::{
    key::{error::KeyError, extractors::HeaderKey},
    middleware::{Config, Framework, KeyOf},
};
use ratelimit_core::{Key, KeySet, Policy};

const IP: &str = "ip";
/// Adapters of frameworks with routes name this key; elsewhere it is missing.
const ROUTE: &str = "route";
const GLOBAL: &str = "global";
const HEADER: &str = "header:";

/// Where a client is: its address, and the key of the address as far as clients are told apart by it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientAddress {
    /// The whole address.
    pub address: IpAddr,
    /// Its key.
    pub key: Key,
}

impl ClientAddress {
    pub(crate) const fn new(address: IpAddr, key: Key) -> ClientAddress {
        ClientAddress { address, key }
    }
}

/// A policy counts by the name of a key that a layer does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKeyName {
    policy: String,
    name: String,
}

impl UnknownKeyName {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for UnknownKeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnknownKeyName { policy, name } = self;
        write!(
            f,
            "the policy {policy:?} counts by {name:?}, which is no key that the limit knows: \
             add .named_key({name:?}, ...), or write ip, route, global or header:NAME"
        )
    }
}

impl error::Error for UnknownKeyName {}

/// A name that limits count by, and where its key is found.
pub(crate) type NamedKey<F> = (Arc<str>, Arc<KeyOf<F>>);

impl<F: Framework> Config<F> {
    /// Where the key called `name` is found, for limits that count by it.
    pub fn named_key(
        &mut self,
        name: &str,
        key: impl Fn(&F::Request) -> Result<Key, KeyError> + Send + Sync + 'static,
    ) {
        self.named_keys.retain(|(known, _)| **known != *name);
        self.named_keys.push((name.into(), Arc::new(key)));
    }

    /// Whether every name that a limit counts by is known, in all tiers.
    ///
    /// # Errors
    ///
    /// The first that is not.
    pub fn check_key_names(&self) -> Result<(), UnknownKeyName> {
        let own = self.policy.policy();
        let tiers = own.tiers().map(|(_, tier)| tier);
        let policies = std::iter::once(own).chain(tiers);
        let mut names = policies.flat_map(Policy::key_names);
        match names.find(|name| !self.has_key(name)) {
            Some(unknown) => Err(self.unknown(unknown)),
            None => Ok(()),
        }
    }

    fn has_key(&self, name: &str) -> bool {
        let is_given = self.named_keys.iter().any(|(known, _)| **known == *name);
        is_given || [IP, ROUTE, GLOBAL].contains(&name) || name.starts_with(HEADER)
    }

    pub(crate) fn unknown(&self, name: &str) -> UnknownKeyName {
        UnknownKeyName {
            policy: self.policy.name().to_owned(),
            name: name.to_owned(),
        }
    }

    /// The keys of all names that the limits of `policy` count by; one that is missing stays out, and
    /// the request's own is in its place.
    #[inline]
    pub(crate) fn keys(
        &self,
        request: &F::Request,
        own: Key,
        policy: &Policy,
    ) -> Result<KeySet, KeyError> {
        let mut keys = KeySet::new(own);
        for name in policy.key_names() {
            match self.key_of_name(request, name) {
                Ok(key) => keys = keys.with(name, key),
                Err(KeyError::Missing) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(keys)
    }

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

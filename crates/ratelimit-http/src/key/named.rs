//! Keys that limits count by under a name, as in `100/min by ip`.

use std::{error, fmt, net::IpAddr, sync::Arc};

use crate::client_ip::HeaderLines as _;
use crate::{
    key::{error::KeyError, extractors::HeaderKey},
    middleware::{Config, Framework, KeyOf},
};
use ratelimit_core::{Key, KeySet, Policy};

/// The client's address.
const IP: &str = "ip";
/// Adapters of frameworks with routes name this key; elsewhere it is missing.
const ROUTE: &str = "route";
/// One budget for all requests.
const GLOBAL: &str = "global";
/// The value of a header.
const HEADER: &str = "header:";

/// The address of a client, and the key of its network.
///
/// Rules compare the whole address. Limits count by the key, which for IPv6 is that of the /64 unless
/// the resolver has another prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientAddress {
    /// The whole address, also for IPv6.
    pub address: IpAddr,
    /// The key of the address, cut to the prefix that identifies clients.
    pub key: Key,
}

impl ClientAddress {
    pub(crate) const fn new(address: IpAddr, key: Key) -> ClientAddress {
        ClientAddress { address, key }
    }
}

/// A limit that counts by a name for which its layer has no key.
///
/// The layer reports it before it serves requests. Add the key with `named_key`, or count by one of
/// the built-in names `ip`, `route`, `global` and `header:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKeyName {
    policy: String,
    name: String,
}

impl UnknownKeyName {
    /// The name that is not known.
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

/// A name, and the function that finds its key.
pub(crate) type NamedKey<F> = (Arc<str>, Arc<KeyOf<F>>);

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
        is_given || [IP, ROUTE, GLOBAL].contains(&name) || name.starts_with(HEADER)
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

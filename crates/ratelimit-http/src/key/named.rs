//! The client's address as a key, and the error for names of keys that a layer does not have.

use std::{error, fmt, net::IpAddr};

use ratelimit_core::Key;

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
/// the built-in names `ip`, `global` and `header:NAME`. The layers of axum and actix-web also know `route`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKeyName {
    pub(crate) policy: String,
    pub(crate) name: String,
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
             add .named_key({name:?}, ...), or write ip, global, header:NAME, or route under axum and actix-web"
        )
    }
}

impl error::Error for UnknownKeyName {}

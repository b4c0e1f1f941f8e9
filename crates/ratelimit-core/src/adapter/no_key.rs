//! Requests without a key.

use std::fmt;

use crate::{client_addr::NoClient, key::InvalidKey};

/// Why a request has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoKey {
    /// The request does not have what the key is made of: 400.
    Missing,
    /// What the request names cannot be a key: 400.
    BadKey,
    /// The request names more than one key: 400.
    AmbiguousKey,
    /// The peer's address is unknown, which is for the service to set right: 500.
    NoClient,
    /// A limit counts by a name that the service gave no key, which is for it to set right: 500.
    UnknownName,
}

impl NoKey {
    /// The word for this error in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            NoKey::Missing => "missing_key",
            NoKey::BadKey => "bad_key",
            NoKey::AmbiguousKey => "ambiguous_key",
            NoKey::NoClient => "no_client",
            NoKey::UnknownName => "unknown_key_name",
        }
    }
}

impl fmt::Display for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoKey::Missing => "the request does not have what its key is made of",
            NoKey::BadKey => "the request names a key that cannot be one",
            NoKey::AmbiguousKey => "the request names more than one key",
            NoKey::NoClient => "the request has no client address",
            NoKey::UnknownName => "a limit counts by a key of an unknown name",
        })
    }
}

impl std::error::Error for NoKey {}

impl From<NoClient> for NoKey {
    fn from(why: NoClient) -> NoKey {
        match why {
            NoClient::BadKey => NoKey::BadKey,
            NoClient::AmbiguousKey => NoKey::AmbiguousKey,
            NoClient::NoAddress => NoKey::NoClient,
        }
    }
}

impl From<InvalidKey> for NoKey {
    fn from(why: InvalidKey) -> NoKey {
        match why {
            InvalidKey::Empty => NoKey::Missing,
            InvalidKey::Tag => NoKey::BadKey,
        }
    }
}

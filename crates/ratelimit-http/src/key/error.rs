//! Requests without a key.

use std::fmt;

use crate::client_ip::ClientIpError;
use ratelimit_core::InvalidKey;

/// Why a request has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyError {
    /// The request does not have what the key is made of: 400.
    Missing,
    /// What the request names cannot be a key: 400.
    Invalid,
    /// The request names more than one key: 400.
    Ambiguous,
    /// The peer's address is unknown, which is for the service to set right: 500.
    NoClientAddress,
    /// A limit counts by a name that the service gave no key, which is for it to set right: 500.
    UnknownName,
}

impl KeyError {
    /// The word for this error in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            KeyError::Missing => "missing_key",
            KeyError::Invalid => "bad_key",
            KeyError::Ambiguous => "ambiguous_key",
            KeyError::NoClientAddress => "no_client",
            KeyError::UnknownName => "unknown_key_name",
        }
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyError::Missing => "the request does not have what its key is made of",
            KeyError::Invalid => "the request names a key that cannot be one",
            KeyError::Ambiguous => "the request names more than one key",
            KeyError::NoClientAddress => "the request has no client address",
            KeyError::UnknownName => "a limit counts by a key of an unknown name",
        })
    }
}

impl std::error::Error for KeyError {}

impl From<ClientIpError> for KeyError {
    fn from(why: ClientIpError) -> KeyError {
        match why {
            ClientIpError::BadKey => KeyError::Invalid,
            ClientIpError::AmbiguousKey => KeyError::Ambiguous,
            ClientIpError::NoAddress => KeyError::NoClientAddress,
        }
    }
}

impl From<InvalidKey> for KeyError {
    fn from(why: InvalidKey) -> KeyError {
        match why {
            InvalidKey::Empty => KeyError::Missing,
            _ => KeyError::Invalid,
        }
    }
}

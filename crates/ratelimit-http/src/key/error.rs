//! The error of key extractors.

use std::fmt;

use crate::client_ip::ClientIpError;
use ratelimit_core::InvalidKey;

/// An error that leaves a request without a key.
///
/// [`Missing`](KeyError::Missing) is the only variant after which `or` and `or_shared` use another
/// key. After the others the request is rejected, because a client could otherwise choose a fresh
/// budget by sending a malformed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyError {
    /// The request does not have the source of the key. The response is 400.
    Missing,
    /// The request contains a value that is not valid as a key. The response is 400.
    Invalid,
    /// The request contains more than one value. The response is 400.
    Ambiguous,
    /// The service does not know the peer's address. The response is 500: the service has to be
    /// configured.
    NoClientAddress,
    /// A limit counts by a name for which the service has no key. The response is 500.
    UnknownName,
}

impl KeyError {
    /// The word for this error in logs, such as `missing_key`.
    ///
    /// ```
    /// use ratelimit_http::key::KeyError;
    ///
    /// assert_eq!(KeyError::NoClientAddress.as_str(), "no_client");
    /// ```
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
    /// Maps the errors of address resolution and of explicit keys.
    fn from(error: ClientIpError) -> KeyError {
        match error {
            ClientIpError::BadKey => KeyError::Invalid,
            ClientIpError::AmbiguousKey => KeyError::Ambiguous,
            ClientIpError::NoAddress => KeyError::NoClientAddress,
        }
    }
}

impl From<InvalidKey> for KeyError {
    /// An empty key is a missing one.
    fn from(error: InvalidKey) -> KeyError {
        match error {
            InvalidKey::Empty => KeyError::Missing,
            _ => KeyError::Invalid,
        }
    }
}

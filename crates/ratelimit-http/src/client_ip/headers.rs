//! The headers from which a client's address is read.

use std::str::FromStr;

use crate::syntax::{InvalidSyntax, field_name};

pub(crate) const X_FORWARDED_FOR: &str = "x-forwarded-for";
pub(crate) const X_REAL_IP: &str = "x-real-ip";
pub(crate) const FORWARDED: &str = "forwarded";

/// Read access to the header fields of one request, independent of the crate that stores them.
///
/// For `http::HeaderMap`, of either version, and for actix-web's, an implementation is one line in
/// a type that borrows the map: `self.0.get_all(name).iter().map(HeaderValue::as_bytes)`. It is
/// implemented for slices of pairs:
///
/// ```
/// use ratelimit_http::client_ip::HeaderLines;
///
/// let headers = [("X-Forwarded-For", "1.1.1.1"), ("x-forwarded-for", "203.0.113.7")];
/// assert_eq!(headers.lines("x-forwarded-for").next_back(), Some(&b"203.0.113.7"[..]));
/// ```
pub trait HeaderLines {
    /// The values of all lines of the field `name`, in the order received.
    ///
    /// `name` is in lower case. Received names are compared without regard to case.
    fn lines<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a [u8]>;
}

impl<N: AsRef<str>, V: AsRef<[u8]>> HeaderLines for [(N, V)] {
    fn lines<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let named = move |line: &&'a (N, V)| line.0.as_ref().eq_ignore_ascii_case(name);
        self.iter().filter(named).map(|line| line.1.as_ref())
    }
}

/// The header that lists the hops of a request.
///
/// Only one header is read: a proxy that maintains one of them passes the others through as the
/// client wrote them. It is chosen by its name, in any case:
///
/// ```
/// use ratelimit_http::client_ip::ChainHeader;
///
/// assert_eq!("Forwarded".parse(), Ok(ChainHeader::Forwarded));
/// assert_eq!("CF-Connecting-IP".parse::<ChainHeader>()?.name(), "cf-connecting-ip");
/// # Ok::<(), ratelimit_http::InvalidSyntax>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChainHeader {
    /// `X-Forwarded-For`: each proxy appends the address of its own peer.
    #[default]
    XForwardedFor,
    /// `Forwarded` of RFC 7239: each proxy appends an element with a `for` parameter.
    Forwarded,
    /// A header with the client's address alone, such as `CF-Connecting-IP`. The provider
    /// overwrites what a client sends.
    Provider(ProviderHeader),
}

impl ChainHeader {
    /// The name of the header, in lower case.
    pub fn name(&self) -> &str {
        match self {
            Self::XForwardedFor => X_FORWARDED_FOR,
            Self::Forwarded => FORWARDED,
            Self::Provider(header) => header.name(),
        }
    }
}

impl FromStr for ChainHeader {
    type Err = InvalidSyntax;

    /// Parses the name of a header; a name other than the two standard ones is a provider's.
    ///
    /// # Errors
    ///
    /// [`InvalidSyntax`] if `text` is not the name of a header.
    fn from_str(text: &str) -> Result<Self, InvalidSyntax> {
        const EXPECTED: &str = "one header name such as x-forwarded-for";
        let invalid = || InvalidSyntax::new("chain header", text, EXPECTED);
        Ok(match field_name(text).ok_or_else(invalid)? {
            name if name == X_FORWARDED_FOR => Self::XForwardedFor,
            name if name == FORWARDED => Self::Forwarded,
            name => Self::Provider(ProviderHeader(name.into_boxed_str())),
        })
    }
}

/// The name of a provider's header, made by parsing a [`ChainHeader`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderHeader(Box<str>);

impl ProviderHeader {
    /// The name of the header, in lower case.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Whether the value always ends in `:port`. CloudFront writes IPv6 addresses without brackets.
    pub(crate) fn always_ends_in_port(&self) -> bool {
        &*self.0 == "cloudfront-viewer-address"
    }
}

/// Whether `headers` has one of the headers that proxies write: `X-Forwarded-For`, `Forwarded` or
/// `X-Real-IP`.
///
/// Clients can write them as well, so this is a hint for a warning and not for a decision.
pub fn has_forwarding_headers(headers: &(impl HeaderLines + ?Sized)) -> bool {
    [X_FORWARDED_FOR, FORWARDED, X_REAL_IP]
        .iter()
        .any(|name| headers.lines(name).next().is_some())
}

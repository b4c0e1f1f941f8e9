//! The walk from the connection to the client, step by step.

use std::net::IpAddr;

use crate::client_ip::{
    chain,
    client::{ClientIp, ClientIpError, ClientIpSource},
    headers::{self, ChainHeader, HeaderLines},
};

/// The maximum number of steps that a walk keeps.
const MAX_STEPS: usize = 100;
/// The maximum length of a value, in bytes.
const MAX_VALUE: usize = 200;

/// The way on which [`ClientIpResolver::trace`](crate::client_ip::ClientIpResolver::trace) found a client, for
/// operators.
///
/// - The steps begin at the connection and go on to the left end of the chain header.
/// - Headers that were not read are steps too, with the verdict [`NotRead`](WalkVerdict::NotRead).
/// - One step has the verdict [`Client`](WalkVerdict::Client) or [`PeerUntrusted`](WalkVerdict::PeerUntrusted), unless the
///   request has no client.
///
/// ```
/// use ratelimit_http::client_ip::{ClientIpResolver, WalkVerdict};
///
/// // No proxy is trusted, so the peer is the client.
/// let headers = [("X-Forwarded-For", "203.0.113.7")];
/// let resolver = ClientIpResolver::default();
/// let walk = resolver.trace(Some("10.0.0.1".parse()?), &headers[..]);
///
/// assert_eq!(walk.client?.to_string(), "ip:10.0.0.1");
/// assert_eq!(walk.steps[0].verdict, WalkVerdict::PeerUntrusted);
/// assert_eq!(walk.steps[1].header.as_deref(), Some("x-forwarded-for"));
/// assert_eq!(walk.steps[1].value, "203.0.113.7");
/// assert_eq!(walk.steps[1].verdict, WalkVerdict::NotRead);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientIpWalk<'a> {
    /// The result of [`resolve`](crate::client_ip::ClientIpResolver::resolve).
    pub client: Result<ClientIp<'a>, ClientIpError>,
    /// The first 100 steps.
    pub steps: Vec<WalkStep>,
    /// The number of further steps.
    pub more_steps: usize,
}

/// One value that names an address, and how it was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WalkStep {
    /// The header in lower case; `None` for the connection.
    pub header: Option<String>,
    /// The value as text, cut after 200 bytes; empty for a Unix socket.
    pub value: String,
    /// The verdict.
    pub verdict: WalkVerdict,
}

/// How a step of a walk was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WalkVerdict {
    /// A proxy that is trusted: the walk goes on.
    Trusted,
    /// The client.
    Client,
    /// Not looked at: the client can have written it.
    NotRead,
    /// The peer is not trusted, so it is the client, and no header is read.
    PeerUntrusted,
    /// Not an address: the walk ends at the step before.
    Bad,
}

impl WalkVerdict {
    /// The word for this verdict in JSON.
    ///
    /// ```
    /// use ratelimit_http::client_ip::WalkVerdict;
    ///
    /// assert_eq!(WalkVerdict::PeerUntrusted.as_str(), "peer_untrusted");
    /// ```
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::Client => "client",
            Self::NotRead => "not_read",
            Self::PeerUntrusted => "peer_untrusted",
            Self::Bad => "bad",
        }
    }
}

/// Sees the steps of a walk. `()` sees nothing, and costs nothing.
pub(super) trait WalkObserver {
    /// Sees one value of a header.
    fn see(&mut self, header: &str, value: &[u8], verdict: WalkVerdict);

    /// Sees the values of a header that are not read.
    fn see_unread<'a>(&mut self, header: &str, values: impl IntoIterator<Item = &'a [u8]>);
}

impl WalkObserver for () {
    #[inline]
    fn see(&mut self, _: &str, _: &[u8], _: WalkVerdict) {}

    #[inline]
    fn see_unread<'a>(&mut self, _: &str, _: impl IntoIterator<Item = &'a [u8]>) {}
}

/// Keeps the steps of a walk.
#[derive(Debug, Default)]
pub(super) struct WalkRecorder {
    steps: Vec<WalkStep>,
    more_steps: usize,
    /// Whether a trusted hop was not recorded.
    is_cut: bool,
}

impl WalkRecorder {
    /// A walk that begins at a peer.
    pub(super) fn new(peer: Option<IpAddr>, is_trusted: bool) -> WalkRecorder {
        let value = peer.map(|peer| peer.to_canonical().to_string());
        let verdict = if is_trusted {
            WalkVerdict::Trusted
        } else {
            WalkVerdict::PeerUntrusted
        };
        let connection = WalkStep {
            header: None,
            value: value.unwrap_or_default(),
            verdict,
        };
        WalkRecorder {
            steps: vec![connection],
            more_steps: 0,
            is_cut: false,
        }
    }

    /// Adds the forwarding headers that the walk had no part in.
    pub(super) fn add_unread(
        &mut self,
        headers: &(impl HeaderLines + ?Sized),
        chain: &ChainHeader,
    ) {
        let others = [ChainHeader::XForwardedFor, ChainHeader::Forwarded];
        let others = others.iter().filter(|other| *other != chain);
        for header in std::iter::once(chain).chain(others) {
            self.add_header(header.name(), &chain::texts(header, headers));
        }
        let real_ip: Vec<&[u8]> = headers.lines(headers::X_REAL_IP).collect();
        self.add_header(headers::X_REAL_IP, &real_ip);
    }

    fn add_header(&mut self, header: &str, values: &[&[u8]]) {
        let is_seen = |step: &WalkStep| step.header.as_deref() == Some(header);
        if !self.steps.iter().any(is_seen) {
            self.see_unread(header, values.iter().copied());
        }
    }

    /// The walk that ended with this result.
    pub(super) fn finish(
        mut self,
        client: Result<ClientIp<'_>, ClientIpError>,
    ) -> ClientIpWalk<'_> {
        let is_client = |step: &WalkStep| step.verdict == WalkVerdict::Client;
        if let Ok(found) = &client
            && !self.steps.iter().any(is_client)
        {
            // The walk ended at a trusted hop: the last one, or the peer if no header named an address.
            let last = if found.source() == ClientIpSource::Peer {
                self.steps.first_mut()
            } else if self.is_cut {
                // The step of the client may be one that was not recorded.
                None
            } else {
                let mut read = self.steps.iter_mut().rev();
                read.find(|step| step.verdict == WalkVerdict::Trusted)
            };
            if let Some(step) = last.filter(|step| step.verdict == WalkVerdict::Trusted) {
                step.verdict = WalkVerdict::Client;
            }
        }
        ClientIpWalk {
            client,
            steps: self.steps,
            more_steps: self.more_steps,
        }
    }
}

impl WalkObserver for WalkRecorder {
    fn see(&mut self, header: &str, value: &[u8], verdict: WalkVerdict) {
        if self.steps.len() >= MAX_STEPS {
            self.more_steps += 1;
            self.is_cut |= verdict == WalkVerdict::Trusted;
            return;
        }
        self.steps.push(WalkStep {
            header: Some(header.to_owned()),
            value: shorten(value),
            verdict,
        });
    }

    fn see_unread<'a>(&mut self, header: &str, values: impl IntoIterator<Item = &'a [u8]>) {
        for value in values {
            self.see(header, value, WalkVerdict::NotRead);
        }
    }
}

/// The value as text of a bounded length.
fn shorten(value: &[u8]) -> String {
    match value.get(..MAX_VALUE) {
        Some(start) => format!("{}...", String::from_utf8_lossy(start)),
        None => String::from_utf8_lossy(value).into_owned(),
    }
}

//! Whose address a request comes from: trusted proxies and the header walk, over bytes.
//!
//! The rules, in the order in which they apply:
//!
//! 1. A peer that is not trusted is the client, and no header is read.
//! 2. From a trusted peer, one chain header is walked from its right end over all its field
//!    lines. A trusted element is passed over, the first untrusted one is the client, and an
//!    element that is no address ends the walk at the last verified hop.
//! 3. When every element is trusted, the leftmost is the client; after
//!    [`max_hops`](ClientIpResolver::max_hops) trusted elements the walk ends where it is.
//! 4. Without an `X-Forwarded-For`, a single `X-Real-IP` of a trusted peer is the client.
//! 5. [`trusted_hops`](ClientIpResolver::trusted_hops) replaces the list of trusted proxies by a count.
//! 6. `::ffff:a.b.c.d` is `a.b.c.d` everywhere, ports and zones are dropped, and IPv6
//!    clients are told apart by their /64 unless [`ipv6_prefix`](ClientIpResolver::ipv6_prefix)
//!    says otherwise.
//!
//! Bytes and not strings: one byte that is no UTF-8 on the client's side of a line must not
//! hide what a proxy appended to it.

mod cidr;
mod client;
mod forwarded;
mod headers;
mod parse;
mod resolver;
mod trusted_proxies;

pub use self::{
    cidr::Cidr,
    client::{ClientIp, ClientIpError, ClientIpSource},
    headers::{ChainHeader, HeaderLines, ProviderHeader, has_forwarding_headers},
    parse::{is_private, parse_address},
    resolver::ClientIpResolver,
    trusted_proxies::TrustedProxies,
};

//! The client's address behind trusted proxies.
//!
//! A [`ClientIpResolver`] finds the address of the client that sent a request. It works on bytes and
//! on [`HeaderLines`], so it serves every framework.
//!
//! The rules, in the order in which they apply:
//!
//! 1. A peer that is not trusted is the client, and no header is read.
//! 2. From a trusted peer, one chain header is walked from its right end over all its field
//!    lines. A trusted element is passed over, the first untrusted one is the client, and an
//!    element that is not an address ends the walk at the last verified hop.
//! 3. When every element is trusted, the leftmost is the client; after
//!    [`max_hops`](ClientIpResolver::max_hops) trusted elements the walk ends where it is.
//! 4. Without an `X-Forwarded-For`, a single `X-Real-IP` of a trusted peer is the client.
//! 5. [`behind_hops`](ClientIpResolver::behind_hops) takes a count in place of the list of trusted proxies.
//! 6. `::ffff:a.b.c.d` is `a.b.c.d` everywhere, ports and zones are dropped, and IPv6
//!    clients are identified by their /64 unless [`ipv6_prefix`](ClientIpResolver::ipv6_prefix)
//!    sets another length: one subscriber usually has a whole /64.
//!
//! Headers are parsed as bytes, not as strings. A byte that is not UTF-8 on the client's side of a
//! line must not hide the element that a proxy appended to it.

mod chain;
mod cidr;
mod client;
mod forwarded;
mod headers;
mod parse;
mod resolver;
mod trusted_proxies;
mod walk;

pub use self::{
    cidr::Cidr,
    client::{ClientIp, ClientIpError, ClientIpSource},
    headers::{ChainHeader, HeaderLines, ProviderHeader, has_forwarding_headers},
    parse::{is_private, parse_address},
    resolver::ClientIpResolver,
    trusted_proxies::TrustedProxies,
    walk::{ClientIpWalk, WalkStep, WalkVerdict},
};

//! Rate limiting with exact, equal answers from memory and from Redis.

mod client_addr;

pub use client_addr::{
    ChainHeader, Client, ClientAddr, ExplicitKey, HeaderLines, InvalidHeader, InvalidPrefix,
    InvalidProxies, NoClient, ProviderHeader, Source, TrustedProxies, carries_forwarding_headers,
    is_private, parse_address,
};

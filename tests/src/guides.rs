//! Guides whose examples are doctests of this crate.

#[doc = include_str!("../../docs/guides/proxy.md")]
pub struct BehindProxy;

#[doc = include_str!("../../docs/guides/login.md")]
pub struct Login;

#[doc = include_str!("../../docs/guides/tiers.md")]
pub struct Tiers;

#[doc = include_str!("../../docs/guides/uploads.md")]
pub struct Uploads;

#[doc = include_str!("../../docs/guides/llm-tokens.md")]
pub struct LlmTokens;

#[doc = include_str!("../../docs/guides/websockets.md")]
pub struct Websockets;

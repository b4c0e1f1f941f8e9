//! The pages whose examples are doctests of this crate, all in one place.
//!
//! The front pages of the crates include others. The test `code_blocks` fails for a page with a block of Rust that is in none of
//! them.

/// The README.
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// The programs of the README and of the adapters' pages, run with a request each.
#[doc = include_str!(concat!(env!("OUT_DIR"), "/snippets.md"))]
pub struct Snippets;

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

#[doc = include_str!("../../docs/guides/prefetch.md")]
pub struct Prefetching;

#[doc = include_str!("../../docs/move/actix-governor.md")]
pub struct ActixGovernor;

#[doc = include_str!("../../docs/move/tower_governor.md")]
pub struct TowerGovernor;

#[doc = include_str!("../../docs/reference/attribute.md")]
pub struct Attribute;

#[doc = include_str!("../../docs/reference/layer.md")]
pub struct Layer;

#[doc = include_str!("../../docs/reference/limit-text.md")]
pub struct LimitText;

#[doc = include_str!("../../docs/reference/metrics.md")]
pub struct Metrics;

#[doc = include_str!("../../docs/reference/policy-file.md")]
pub struct PolicyFile;

#[doc = include_str!("../../docs/start/README.md")]
pub struct Start;

#[doc = include_str!("../../docs/start/tower.md")]
pub struct Tower;

#[doc = include_str!("../../docs/guides/custom-response.md")]
pub struct CustomResponse;

#[doc = include_str!("../../docs/guides/jobs.md")]
pub struct Jobs;

#[doc = include_str!("../../docs/guides/outgoing.md")]
pub struct Outgoing;

#[doc = include_str!("../../docs/guides/redis.md")]
pub struct Redis;

#[doc = include_str!("../../docs/guides/roll-out.md")]
pub struct RollOut;

#[doc = include_str!("../../docs/guides/wait.md")]
pub struct Wait;

#[doc = include_str!("../../docs/guides/testing.md")]
pub struct Testing;

/// The README of the attribute's crate, which cannot depend on axum.
#[doc = include_str!("../../crates/ratelimit-macros/README.md")]
pub struct ReadmeOfMacros;

/// Mistakes in the attribute are compile errors, whose texts are tests of its crate.
///
/// ```compile_fail
/// #[ratelimit_axum::rate_limit("5/fortnight")]
/// async fn login() {}
/// ```
///
/// ```compile_fail
/// #[ratelimit_actix::rate_limit("5/fortnight")]
/// async fn login() -> &'static str { "hello" }
/// ```
///
/// `unlimited` stands above the route:
///
/// ```compile_fail
/// #[actix_web::get("/login")]
/// #[ratelimit_actix::rate_limit("5/min", unlimited = login_unlimited)]
/// async fn login() -> &'static str { "hello" }
/// ```
pub struct AttributeMistakes;

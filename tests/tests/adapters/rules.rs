//! Rules and tenants whose key no request can have.

use actix_web::{App, web};
use axum::{Router, routing::get};
use http::request::Parts;
use ratelimit_core::{Key, Limiter};
use ratelimit_http::{key::KeyError, policy::HttpPolicy};

use crate::log::Log;

const WARNING: &str = "never matches";

/// A policy with a blocked key, an exempt secret and a tenant, none of which a header names.
fn policy(name: &str) -> HttpPolicy {
    let policy = HttpPolicy::parse(name, "10/min").expect("a limit");
    let rule = |text: &str| text.parse().expect("a rule");
    policy
        .with_block_rule(rule("key:user:4711"))
        .with_exempt_rule(rule("secret:api-key:s3cr3t"))
        .with_exempt_rule(rule("printed:header:x-tenant:acme"))
        .with_tier("pro", "1000/min")
        .expect("a limit")
        .with_tier_members([(Key::new("globex").expect("a key"), "pro")])
}

#[tokio::test]
async fn a_layer_warns_once_of_each_key_that_its_extractor_never_makes() {
    use ratelimit_axum::{HeaderKey, RateLimitLayer};
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let tenant = HeaderKey::new(http::HeaderName::from_static("x-tenant"));
    let layer = RateLimitLayer::new(Limiter::in_memory(), policy("of-axum")).key_by(tenant);

    let _: Router = Router::new()
        .route("/", get(async || "hello"))
        .route("/other", get(async || "hello"))
        .layer(layer);

    assert_eq!(log.holding(WARNING), 3);
    assert_eq!(log.holding("the rule key:user:4711 never matches"), 1);
    assert_eq!(log.holding("the rule secret:api-key:... never"), 1);
    assert_eq!(log.holding("the tenant key:globex never matches"), 1);
    assert_eq!(log.holding("keys are header:x-tenant:..."), 3);
    assert_eq!(log.holding("s3cr3t"), 0);
}

#[actix_web::test]
async fn each_worker_of_actix_repeats_no_warning() {
    use ratelimit_actix::{HeaderKey, RateLimit};
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    for _ in 0..2 {
        let name = actix_web::http::header::HeaderName::from_static("x-tenant");
        let limit = RateLimit::new(Limiter::in_memory(), policy("of-actix"));
        let app = App::new().wrap(limit.key_by(HeaderKey::new(name)));
        let app = app.route("/", web::get().to(async || "hello"));
        actix_web::test::init_service(app).await;
    }

    assert_eq!(log.holding(WARNING), 3);
}

#[tokio::test]
async fn an_extractor_that_cannot_tell_its_keys_causes_no_warning() {
    use ratelimit_axum::{ApiKey, ClientKey, KeyExtractor as _, RateLimitLayer};
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let by_function = |_: &Parts| Err::<Key, KeyError>(KeyError::Missing);
    let layer = || RateLimitLayer::new(Limiter::in_memory(), policy("unknown"));

    for layer in [
        layer(),
        layer().key_by(by_function),
        layer().key_by(ApiKey.or(ClientKey::new())),
    ] {
        let _: Router = Router::new().route("/", get(async || "hello")).layer(layer);
    }

    assert_eq!(log.holding(WARNING), 0);
}

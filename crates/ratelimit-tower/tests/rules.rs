//! Rules and tenants that name the keys of each extractor.

mod common;

use http::{HeaderName, Request};
use ratelimit_core::{Key, Limiter};
use ratelimit_http::{key::RuleKey, policy::HttpPolicy};
use ratelimit_tower::{
    ApiKey, CookieKey, ExtensionKey, HeaderKey, KeyExtractor, PathKey, QueryKey, RateLimitLayer,
};

use self::common::{header, send};

#[derive(Clone)]
struct User(u64);

fn request() -> http::request::Builder {
    Request::builder()
        .uri("/teams/red?app=shop&token=s3cr3t")
        .header("x-tenant", "acme")
        .header("x-api-key", "s3cr3t")
        .header("cookie", "session=s3cr3t")
        .extension(User(4711))
}

fn api() -> HttpPolicy {
    HttpPolicy::parse("api", "10/min").expect("a limit")
}

async fn assert_matched<K: KeyExtractor>(extractor: impl Fn() -> K, text: &str) {
    let key: RuleKey = text.parse().expect(text);
    let rule = text.parse().expect(text);
    let blocked = api().with_block_rule(rule);
    let tiered = api().with_tier("pro", "1000/min").expect("a limit");
    let tiered = tiered.with_tier_members([(key, "pro")]);
    for (policy, status, limit) in [(blocked, 403, None), (tiered, 200, Some("1000"))] {
        let layer = RateLimitLayer::new(Limiter::in_memory(), policy).key_by(extractor());

        let response = send(&layer, request().body(()).expect("a request")).await;

        assert_eq!(response.status(), status, "{text}");
        assert_eq!(header(&response, "x-ratelimit-limit"), limit, "{text}");
    }
}

#[tokio::test]
async fn a_printed_key_matches_what_the_extractor_makes() {
    let header = || HeaderKey::new(HeaderName::from_static("x-tenant"));
    let path = || PathKey::new("/teams/{team}", "team");
    let query = || QueryKey::new("app", |_| true);
    assert_matched(header, "printed:header:x-tenant:acme").await;
    assert_matched(path, "printed:path:team:red").await;
    assert_matched(query, "printed:query:app:shop").await;
    let pair = "printed:header:x-tenant:acme/path:team:red";
    assert_matched(|| header().and(path()), pair).await;
}

#[tokio::test]
async fn a_secret_matches_the_digest_that_the_extractor_makes() {
    let cookie = || CookieKey::new("session");
    assert_matched(|| ApiKey, "secret:api-key:s3cr3t").await;
    assert_matched(cookie, "secret:cookie:session:s3cr3t").await;
    let header = || HeaderKey::new(HeaderName::from_static("x-api-key"));
    assert_matched(header, "secret:header:x-api-key:s3cr3t").await;
    let query = || QueryKey::new("token", |_| true);
    assert_matched(query, "secret:query:token:s3cr3t").await;
}

#[tokio::test]
async fn the_user_of_an_extension_can_be_blocked_and_have_a_tier() {
    let by_user = || ExtensionKey::new(|user: &User| Ok(Key::tagged("user", user.0.to_string())?));
    assert_matched(by_user, "printed:user:4711").await;
}

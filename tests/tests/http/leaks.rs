//! No answer tells a key.

use bytes::Bytes;
use http::{HeaderName, Request, Response};
use ratelimit_http::{client_ip::TrustedProxies, response::HeaderStyle};
use ratelimit_tests::chaos::Observations;
use ratelimit_tower::{ApiKey, ClientKey, CookieKey, HeaderKey, KeyExtractor as _, QueryKey};

use crate::server::{Asker, BOTH, clock, layer, serve};

const CANARY: &str = "c4n4ry";
const ADDRESS: &str = "203.0.113.77";

#[tokio::test]
async fn neither_bodies_nor_headers_nor_metrics_nor_logs_hold_a_key_or_an_address() {
    let observed = Observations::listen();
    let styles = [
        HeaderStyle::XRateLimit,
        HeaderStyle::XRateLimitDelta,
        HeaderStyle::RateLimit,
        HeaderStyle::Ietf,
    ];
    for (version, style) in BOTH
        .into_iter()
        .flat_map(|v| styles.map(|style| (v, style)))
    {
        let named = HeaderName::from_static("x-canary");
        let proxies = TrustedProxies::parse(["127.0.0.1"]).expect("an address");
        let client = ClientKey::behind(proxies).explicit_header(named.clone(), |_| true);
        let base = layer(&clock(), "1/min").headers(style).expose_headers();
        let layers = [
            base.clone().key_by(client.clone().and(ApiKey)),
            base.clone()
                .key_by(HeaderKey::new(named.clone()).and(client.clone())),
            base.clone()
                .key_by(CookieKey::new("sid").and(client.clone())),
            base.clone()
                .key_by(QueryKey::new("key", |_| true).and(client.clone())),
            base.clone().key_by(QueryKey::new("key", |_| false)),
            base.clone().cost(|_| 2).key_by(client),
        ];
        for layer in layers {
            let asker = Asker::new(version, serve("127.0.0.1", layer).await);
            let request = || {
                Request::get(asker.uri("/c4n4ry?key=c4n4ry"))
                    .header("x-canary", CANARY)
                    .header("x-api-key", CANARY)
                    .header("cookie", "sid=c4n4ry")
                    .header("x-forwarded-for", ADDRESS)
            };
            asker.ask(request()).await;

            assert_silent(&asker.ask(request()).await);
            assert_silent(&asker.ask(request().header("x-canary", CANARY)).await);
            assert_silent(
                &asker
                    .ask(request().header("content-type", "application/grpc"))
                    .await,
            );
        }
    }
    let recorded = observed.names();
    assert!(
        recorded
            .iter()
            .any(|name| name.contains("rate_limiter_requests_total"))
    );
    for secret in [CANARY, ADDRESS, "127.0.0.1"] {
        assert!(
            !recorded.iter().any(|name| name.contains(secret)),
            "{recorded:?}"
        );
        assert_eq!(observed.lines(secret), [""; 0]);
    }
}

fn assert_silent(response: &Response<Bytes>) {
    let refused = response.status() != 200 || response.headers().contains_key("grpc-status");
    assert!(refused, "only refusals are of interest here");
    let headers = response.headers().iter();
    let mut said: Vec<u8> = headers
        .flat_map(|(name, value)| [name.as_str().as_bytes(), value.as_bytes()].concat())
        .collect();
    said.extend(response.body());
    let said = String::from_utf8_lossy(&said);
    for secret in [CANARY, ADDRESS, "127.0.0.1"] {
        assert!(!said.contains(secret), "{said}");
    }
}

//! Whose budget is spent, source by source.

mod common;

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex},
};

use common::{from, get, header, layer, send, start};
use http::{HeaderName, HeaderValue, Request, StatusCode, request::Parts};
use ratelimit_core::Key;
use ratelimit_http::client_ip::{ClientIpResolver, TrustedProxies};
use ratelimit_tower::{
    ApiKey, ClientKey, CookieKey, ExtensionKey, HeaderKey, KeyError, KeyExtractor, MethodKey,
    PathKey, QueryKey,
};
use tracing::{Event, Metadata, Subscriber, field, span};

fn parts(request: http::request::Builder) -> Parts {
    request.body(()).expect("a request").into_parts().0
}

fn key(extractor: &impl KeyExtractor, request: http::request::Builder) -> Result<String, KeyError> {
    extractor
        .extract(&parts(request))
        .map(|key| key.as_str().to_owned())
}

fn tenant() -> HeaderKey {
    HeaderKey::new(HeaderName::from_static("x-tenant"))
}

fn request() -> http::request::Builder {
    Request::builder()
}

#[test]
fn a_header_is_a_key_of_its_bytes() {
    let raw = HeaderValue::from_bytes(b"a/\xff").unwrap();

    assert_eq!(
        key(&tenant(), request().header("x-tenant", " acme ")).unwrap(),
        "header:x-tenant:acme"
    );
    assert_eq!(
        key(&tenant(), request().header("x-tenant", raw)).unwrap(),
        "header:x-tenant:a%2F%FF"
    );
    assert_eq!(key(&tenant(), request()), Err(KeyError::Missing));
    assert_eq!(
        key(&tenant(), request().header("x-tenant", "")),
        Err(KeyError::Missing)
    );
    let twice = request().header("x-tenant", "a").header("x-tenant", "b");
    assert_eq!(key(&tenant(), twice), Err(KeyError::Ambiguous));
}

#[test]
fn a_missing_source_falls_back_as_its_combinator_says() {
    let fall_through = tenant().or(MethodKey);
    let shared = tenant().or_shared("anonymous");
    let ambiguous = || request().header("x-tenant", "a").header("x-tenant", "b");

    assert_eq!(key(&fall_through, request()).unwrap(), "method:GET");
    assert_eq!(key(&shared, request()).unwrap(), "shared:anonymous");
    assert_eq!(
        key(&shared, request().header("x-tenant", "a")).unwrap(),
        "header:x-tenant:a"
    );
    // An error is no absence: nobody chooses another budget by sending two.
    assert_eq!(key(&fall_through, ambiguous()), Err(KeyError::Ambiguous));
    assert_eq!(key(&shared, ambiguous()), Err(KeyError::Ambiguous));
}

#[test]
fn different_pairs_are_different_keys_whatever_their_bytes() {
    let user = HeaderKey::new(HeaderName::from_static("x-user"));
    let both = tenant().and(user);
    let of = |tenant: &str, user: &str| {
        key(
            &both,
            request().header("x-tenant", tenant).header("x-user", user),
        )
        .unwrap()
    };
    let tricky = [
        "a",
        "b",
        "a/b",
        "a/header:x-user:b",
        "b/header:x-user:a",
        "a%2Fb",
        "~",
        "a:b",
    ];
    let mut seen = std::collections::HashSet::new();

    for one in tricky {
        for other in tricky {
            assert!(seen.insert(of(one, other)), "{one} {other}");
        }
    }
}

#[test]
fn secrets_are_keys_by_their_digest() {
    let api = |request| key(&ApiKey, request);
    let session = CookieKey::new("sid");
    let cookie = |value: &str| key(&session, request().header("cookie", value));

    let by_header = api(request().header("x-api-key", "s3cr3t")).unwrap();
    let by_bearer = api(request().header("authorization", "bearer s3cr3t")).unwrap();
    let by_cookie = cookie("a=b; sid=s3cr3t;c=d").unwrap();

    assert_eq!(by_header, by_bearer);
    assert_ne!(by_header, by_cookie);
    assert!(!by_header.contains("s3cr3t") && !by_cookie.contains("s3cr3t"));
    assert_eq!(
        api(request().header("authorization", "Basic eDp5")),
        Err(KeyError::Missing)
    );
    assert_eq!(
        api(request().header("authorization", "Bearer ")),
        Err(KeyError::Missing)
    );
    assert_eq!(cookie("xsid=1; sidx=2"), Err(KeyError::Missing));
    assert_eq!(cookie("sid="), Err(KeyError::Missing));
    assert_eq!(cookie("sid=1; sid=2"), Err(KeyError::Ambiguous));
}

#[test]
fn values_of_credentials_are_keys_by_their_digest() {
    let header = |name| HeaderKey::new(HeaderName::from_static(name));
    let of = |key: Result<String, KeyError>| key.expect("a key");
    let send = |name: &'static str| request().header(name, "s3cr3t");
    let uri = || request().uri("/reset/s3cr3t?access_token=s3cr3t");
    let client =
        || ClientKey::new().explicit_header(HeaderName::from_static("x-api-key"), |_| true);

    let keys = [
        of(key(&header("authorization"), send("authorization"))),
        of(key(&header("x-api-key"), send("x-api-key"))),
        of(key(&QueryKey::new("access_token", |_| true), uri())),
        of(key(&PathKey::new("/reset/{token}", "token"), uri())),
        of(key(&client(), send("x-api-key"))),
        of(key(
            &client().explicit_query("access_token", |_| true),
            uri(),
        )),
    ];

    for (index, key) in keys.iter().enumerate() {
        assert!(key.starts_with("sha256~"), "{index}: {key}");
    }
    assert_ne!(keys[0], keys[1]);
    // One client, whether the key came in the header or in the query.
    assert_eq!(keys[4], keys[5]);
}

#[test]
fn a_query_parameter_that_fails_its_validator_is_invalid() {
    let plan = QueryKey::new("plan", |plan| ["free", "paid"].contains(&plan));
    let of = |uri: &str| key(&plan, request().uri(uri));

    assert_eq!(of("/?a=1&plan=f%72ee").unwrap(), "query:plan:free");
    assert_eq!(of("/?plan=other"), Err(KeyError::Invalid));
    assert_eq!(of("/?plan=free&plan=paid"), Err(KeyError::Ambiguous));
    assert_eq!(of("/?plan="), Err(KeyError::Missing));
    assert_eq!(of("/"), Err(KeyError::Missing));
}

#[test]
fn a_path_parameter_is_found_by_its_template() {
    let team = PathKey::new("/teams/{team}/{rest}", "team");
    let of = |uri: &str| key(&team, request().uri(uri));

    assert_eq!(of("/teams/red/x").unwrap(), "path:team:red");
    assert_eq!(of("/teams/%72ed/x?y").unwrap(), "path:team:red");
    assert_eq!(of("/teams/r%/x").unwrap(), "path:team:r%25");
    for missing in [
        "/teams//x",
        "/teams/red",
        "/teams/red/x/y",
        "/users/red/x",
        "/",
    ] {
        assert_eq!(of(missing), Err(KeyError::Missing), "{missing}");
    }
}

#[test]
fn a_method_is_a_key_by_its_known_name() {
    assert_eq!(
        key(&MethodKey, request().method("PATCH")).unwrap(),
        "method:PATCH"
    );
    assert_eq!(
        key(&MethodKey, request().method("INVENTED")).unwrap(),
        "method:other"
    );
}

#[test]
fn an_extension_is_a_key_by_closure() {
    #[derive(Clone)]
    struct User(&'static str);
    let user = ExtensionKey::new(|user: &User| Ok(Key::tagged("user", user.0)?));

    assert_eq!(
        key(&user, request().extension(User("7"))).unwrap(),
        "user:7"
    );
    assert_eq!(
        key(&user, request().extension(User(""))),
        Err(KeyError::Missing)
    );
    assert_eq!(key(&user, request()), Err(KeyError::Missing));
}

#[test]
fn an_explicit_key_comes_before_the_address() {
    let known = |key: &str| key.starts_with("user:");
    let client = ClientKey::new()
        .explicit_header(HeaderName::from_static("x-key"), known)
        .explicit_query("key", known);
    let of = |request| key(&client, request);
    let peer = || from("203.0.113.7");
    let named = || peer().extension(Key::new("app").unwrap());

    assert_eq!(of(named().header("x-key", "user:1")).unwrap(), "key:app");
    assert_eq!(
        of(peer().header("x-key", "user:1").uri("/?key=user:2")).unwrap(),
        "key:user:1"
    );
    assert_eq!(
        of(peer().header("x-key", "").uri("/?key=user%3A2")).unwrap(),
        "key:user:2"
    );
    assert_eq!(of(peer().uri("/?key=")).unwrap(), "ip:203.0.113.7");
    assert_eq!(of(peer().header("x-key", "root")), Err(KeyError::Invalid));
    assert_eq!(of(peer().uri("/?key=a&key=b")), Err(KeyError::Ambiguous));
    assert_eq!(
        key(&ClientKey::new(), peer().uri("/?key=user:2")).unwrap(),
        "ip:203.0.113.7"
    );
    assert_eq!(of(request()), Err(KeyError::NoClientAddress));
}

#[test]
fn the_peer_can_be_found_elsewhere() {
    let client = ClientKey::from(ClientIpResolver::default().ipv6_prefix(56).unwrap())
        .peer_by(|request| request.extensions.get().copied());
    let peer: std::net::IpAddr = "2001:db8:1:2ff::1".parse().unwrap();

    assert_eq!(
        key(&client, request().extension(peer)).unwrap(),
        "ip:2001:db8:1:200::/56"
    );
    assert_eq!(
        key(&client, from("203.0.113.7")),
        Err(KeyError::NoClientAddress)
    );
}

#[test]
fn a_network_and_a_host_of_the_same_bits_are_different_clients() {
    let by = |bits| {
        let addr = ClientIpResolver::default().ipv6_prefix(bits).unwrap();
        let client = ClientKey::from(addr);
        key(
            &client,
            request().extension(ratelimit_tower::PeerAddr(
                "[2001:db8:1:2::]:1".parse().unwrap(),
            )),
        )
        .unwrap()
    };

    assert_eq!(by(128), "ip:2001:db8:1:2::");
    assert_eq!(by(64), "ip:2001:db8:1:2::/64");
}

#[tokio::test]
async fn a_request_without_a_key_is_rejected() {
    let layer = layer(&start(), "1/min");
    let by_tenant = layer.clone().key_by(tenant());
    let twice = from("203.0.113.7")
        .header("x-tenant", "a")
        .header("x-tenant", "b");

    let missing = send(&by_tenant, get()).await;
    let ambiguous = send(&by_tenant, twice.body(()).unwrap()).await;
    let nobody = send(&layer, Request::new(())).await;

    assert_eq!(missing.status(), StatusCode::BAD_REQUEST);
    assert_eq!(ambiguous.status(), StatusCode::BAD_REQUEST);
    assert_eq!(nobody.status(), StatusCode::INTERNAL_SERVER_ERROR);
    for response in [missing, ambiguous, nobody] {
        assert_eq!(
            header(&response, "content-type"),
            Some("application/problem+json")
        );
        assert_eq!(header(&response, "x-ratelimit-limit"), None);
    }
}

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_warning = *metadata.level() <= tracing::Level::WARN;
        is_warning && metadata.target().starts_with("ratelimit_")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = event.metadata().level().to_string();
        event.record(&mut |field: &field::Field, value: &dyn std::fmt::Debug| {
            write!(line, " {field}={value:?}").expect("a string takes all");
        });
        self.0.lock().expect("no test failed").push(line);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn an_untrusted_proxy_and_a_missing_peer_are_logged_once_with_the_fix() {
    let log = Log::default();
    let layer = layer(&start(), "9/min");
    let behind = TrustedProxies::parse(["10.0.0.1"]).unwrap();
    let trusting = layer.clone().key_by(ClientKey::behind(behind));
    let forwarded = |peer| {
        from(peer)
            .header("x-forwarded-for", "1.2.3.4")
            .body(())
            .unwrap()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();

    tracing::subscriber::with_default(log.clone(), || {
        runtime.block_on(async {
            send(&layer, forwarded("203.0.113.7")).await;
            send(&layer, get()).await;
            send(&trusting, forwarded("10.0.0.1")).await;
            for _ in 0..3 {
                send(&layer, forwarded("10.0.0.1")).await;
                send(&layer, Request::new(())).await;
            }
        });
    });

    let lines = log.0.lock().unwrap();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("WARN"), "{lines:?}");
    assert!(
        lines[0].contains("TrustedProxies::parse([\"10.0.0.1\"])"),
        "{lines:?}"
    );
    assert!(lines[0].contains("set_global_defaults"), "{lines:?}");
    assert!(lines[1].starts_with("ERROR"), "{lines:?}");
    assert!(
        lines[1].contains("AddPeerAddr::new(service, peer)"),
        "{lines:?}"
    );
}

#[test]
fn a_trusted_proxy_without_a_forwarding_header_is_logged_once() {
    let log = Log::default();
    let behind = TrustedProxies::parse(["10.0.0.1"]).unwrap();
    let layer = layer(&start(), "9/min").key_by(ClientKey::behind(behind));
    let silent = |peer| from(peer).body(()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();

    tracing::subscriber::with_default(log.clone(), || {
        runtime.block_on(async {
            for _ in 0..3 {
                send(&layer, silent("203.0.113.7")).await;
                send(&layer, silent("10.0.0.1")).await;
            }
        });
    });

    let lines = log.0.lock().unwrap();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("a trusted proxy sends no forwarding header"));
}

#[test]
#[should_panic(expected = "counts by \"route\"")]
fn a_layer_without_routes_refuses_to_count_by_them() {
    let policy = ratelimit_core::Policy::parse("api", "100/min; 10/min by route").unwrap();
    let layer = ratelimit_tower::RateLimitLayer::new(ratelimit_core::Limiter::in_memory(), policy);

    let _ = tower::Layer::layer(&layer, ());
}

#[test]
fn a_layer_counts_by_routes_that_it_names() {
    let policy = ratelimit_core::Policy::parse("api", "100/min; 10/min by route").unwrap();
    let layer = ratelimit_tower::RateLimitLayer::new(ratelimit_core::Limiter::in_memory(), policy);

    let _ = tower::Layer::layer(&layer.named_key("route", MethodKey), ());
}

#[test]
fn a_body_of_unknown_length_is_logged_once() {
    let log = Log::default();
    let policy = ratelimit_http::policy::HttpPolicy::parse("chunked", "9/min by global").unwrap();
    let policy = policy.with_cost_source("body".parse().unwrap());
    let layer = ratelimit_tower::RateLimitLayer::new(ratelimit_core::Limiter::in_memory(), policy);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();

    tracing::subscriber::with_default(log.clone(), || {
        runtime.block_on(async {
            for _ in 0..3 {
                let chunked = Request::builder().header("transfer-encoding", "chunked");
                send(&layer, chunked.body(()).unwrap()).await;
                let sized = Request::builder().header("content-length", "1");
                send(&layer, sized.body(()).unwrap()).await;
            }
        });
    });

    let lines = log.0.lock().unwrap();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("without Content-Length"), "{lines:?}");
}

#[test]
fn a_reload_to_an_unknown_key_name_keeps_the_policy_and_is_logged() {
    let log = Log::default();
    let registry =
        ratelimit_http::registry::Registry::from_policies([ratelimit_core::Policy::parse(
            "reloaded",
            "1/min by global",
        )
        .unwrap()]);
    let limiter = ratelimit_core::Limiter::in_memory();
    let layer = ratelimit_tower::RateLimitLayer::named(limiter, &registry, "reloaded").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();

    tracing::subscriber::with_default(log.clone(), || {
        runtime.block_on(async {
            assert_eq!(send(&layer, get()).await.status(), 200);
            let by_route = ratelimit_core::Policy::parse("reloaded", "100/min; 10/min by route");
            registry.replace([by_route.unwrap()]).unwrap();
            for _ in 0..3 {
                assert_eq!(send(&layer, get()).await.status(), 429);
            }
        });
    });

    let lines = log.0.lock().unwrap();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("counts by \"route\""), "{lines:?}");
    assert!(lines[0].contains("stays in force"), "{lines:?}");
}

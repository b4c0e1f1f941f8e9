//! The defaults of a process, which middleware and attributes share.
//!
//! They can be set once per process, so this file has one test.

use actix_web::{
    App, HttpResponse,
    http::StatusCode,
    test::{self, TestRequest},
    web::{self, Json},
};
use ratelimit_actix::{
    ClientKey, Defaults, FailureMode, HeaderStyle, Limiter, Policy, RateLimit, Rejection,
    TrustedProxies, rate_limit, ratelimit_http::middleware::SetDefaultsError, set_global_defaults,
};
use ratelimit_core::{RedisConfig, RedisStore};

#[actix_web::get("/plain")]
#[rate_limit("1/min")]
async fn plain() -> &'static str {
    "hello"
}

#[actix_web::get("/own")]
#[rate_limit("1/min", headers = "ratelimit", on_denied = own_words)]
async fn own() -> &'static str {
    "hello"
}

#[actix_web::get("/closed")]
#[rate_limit("1/min", key = "ip")]
async fn closed() -> &'static str {
    "hello"
}

#[rate_limit("1/min", unlimited = double_unlimited)]
async fn double(Json(number): Json<u64>) -> Json<u64> {
    Json(number * 2)
}

fn own_words(rejection: &Rejection<'_>) -> (Json<String>, StatusCode) {
    let name = rejection.policy.name().to_owned();
    (Json(name), rejection.response().status())
}

fn unreachable_store() -> Limiter {
    let redis = RedisConfig::new("redis://127.0.0.1:1").expect("an address");
    Limiter::new(RedisStore::new(redis))
}

fn policy(limits: &str) -> Policy {
    Policy::parse("layer", limits).expect("a policy")
}

#[actix_web::test]
async fn middleware_and_handlers_take_the_defaults_and_their_own_settings_win() {
    let proxies = TrustedProxies::parse(["10.0.0.0/8"]).expect("a network");
    let defaults = || {
        Defaults::new()
            .limiter(Limiter::in_memory())
            .client_key(ClientKey::behind(proxies.clone()))
            .headers(HeaderStyle::Ietf)
            .on_denied(|_| (Json("slow down"), StatusCode::TOO_MANY_REQUESTS))
            .failure_mode(FailureMode::Closed)
    };
    set_global_defaults(defaults()).expect("set once");
    assert_eq!(
        set_global_defaults(defaults()),
        Err(SetDefaultsError::Already)
    );
    let hello = || web::get().to(async || "hello");
    let in_memory = RateLimit::new(Limiter::in_memory(), policy("1/min"));
    let down = RateLimit::new(unreachable_store(), policy("1/min"));
    let own_style = RateLimit::new(Limiter::in_memory(), policy("1/min"))
        .headers(HeaderStyle::XRateLimit)
        .on_denied(|_| HttpResponse::ImATeapot());
    let app = App::new()
        .service(plain)
        .service(own)
        .service(
            web::scope("/down")
                .app_data(unreachable_store())
                .service(closed),
        )
        .service(web::resource("/layer").wrap(in_memory).route(hello()))
        .service(web::resource("/layer-closed").wrap(down).route(hello()))
        .service(web::resource("/layer-own").wrap(own_style).route(hello()))
        .route("/double", web::post().to(double));
    let app = test::init_service(app).await;
    let sent = async |path: &str, client: &str| {
        let request = TestRequest::get()
            .uri(path)
            .peer_addr(([10, 0, 0, 1], 443).into())
            .insert_header(("x-forwarded-for", client));
        let response = test::call_service(&app, request.to_request()).await;
        let mut names: Vec<String> = response
            .headers()
            .keys()
            .map(ToString::to_string)
            .filter(|name| name.contains("ratelimit"))
            .collect();
        names.sort();
        let status = response.status().as_u16();
        let body = test::read_body(response).await;
        let body = String::from_utf8(body.to_vec()).expect("text");
        (status, names.join(" "), body)
    };

    for path in ["/plain", "/layer"] {
        let ietf = "ratelimit ratelimit-policy";
        let (status, names, _) = sent(path, "203.0.113.7").await;
        assert_eq!((status, names.as_str()), (200, ietf), "{path}");
        let (status, names, body) = sent(path, "203.0.113.7").await;
        assert_eq!((status, names.as_str()), (429, ietf), "{path}");
        assert_eq!(body, "\"slow down\"", "{path}");
        assert_eq!(sent(path, "203.0.113.8").await.0, 200, "{path}: by proxy");
    }
    assert_eq!(sent("/own", "203.0.113.7").await.0, 200);
    let (status, names, body) = sent("/own", "203.0.113.7").await;
    let delta = "ratelimit-limit ratelimit-remaining ratelimit-reset";
    assert_eq!((status, names.as_str()), (429, delta));
    assert!(body.ends_with("own\""), "{body}");
    for path in ["/down/closed", "/layer-closed"] {
        assert_eq!(sent(path, "203.0.113.7").await.0, 503, "{path}");
    }
    assert_eq!(sent("/layer-own", "203.0.113.7").await.0, 200);
    let (status, names, _) = sent("/layer-own", "203.0.113.7").await;
    assert_eq!(status, 418);
    assert!(names.starts_with("x-ratelimit-limit"), "{names}");

    // The handler itself can be called, without a request.
    for _ in 0..3 {
        assert_eq!(double_unlimited(Json(2)).await.into_inner(), 4);
    }
}

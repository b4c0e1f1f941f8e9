//! Serves one axum request while callgrind collects: `cargo xtask hops`.
//!
//! Usage: `hops memory|redis`. The program starts the Redis server itself, which callgrind does not follow.

use std::{env, hint, net::SocketAddr, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::ConnectInfo,
    http::{Request, StatusCode},
    routing::get,
};
use ratelimit_axum::RateLimitLayer;
use ratelimit_bench::RedisServer;
use ratelimit_core::{Limiter, Policy, RedisConfig, RedisStore};
use tokio::runtime::{Builder, Runtime};
use tower::Service as _;

/// Requests before the one that is collected: the key is known, the script is loaded, caches are filled.
const WARM_UP: u32 = 50;

/// Longer than a call takes under callgrind in a debug build.
const TIMEOUT: Duration = Duration::from_secs(30);

fn main() {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let server;
    let limiter = match env::args().nth(1).as_deref() {
        Some("memory") => Limiter::in_memory(),
        Some("redis") => {
            server = RedisServer::start(&[]);
            runtime.block_on(redis_limiter(&server.url()))
        }
        _ => panic!("usage: hops memory|redis"),
    };

    let policy = Policy::parse("hops", "token_bucket 1000000/s").expect("a well-formed limit");
    let mut router = Router::new()
        .route("/", get(async || "hello"))
        .layer(RateLimitLayer::new(limiter, policy));
    for _ in 0..WARM_UP {
        serve(&runtime, &mut router, request());
    }
    let request = request();
    collected_by_callgrind(&runtime, &mut router, request);
}

async fn redis_limiter(url: &str) -> Limiter {
    let config = RedisConfig::new(url).expect("the address of a server");
    let store = RedisStore::new(config.timeout(TIMEOUT).connect_timeout(TIMEOUT));
    assert!(store.wait_connected(TIMEOUT).await, "Redis does not answer");
    Limiter::new(store)
}

fn request() -> Request<Body> {
    let mut request = Request::new(Body::empty());
    let peer = SocketAddr::from(([203, 0, 113, 7], 4711));
    request.extensions_mut().insert(ConnectInfo(peer));
    request
}

/// Callgrind collects the calls in here, and nothing else.
#[inline(never)]
fn collected_by_callgrind(runtime: &Runtime, router: &mut Router, request: Request<Body>) {
    serve(runtime, router, request);
    // A call that comes last could become a jump, and callgrind would not see its return.
    hint::black_box(());
}

fn serve(runtime: &Runtime, router: &mut Router, request: Request<Body>) {
    let response = runtime.block_on(router.call(request));
    let Ok(response) = response;
    assert_eq!(response.status(), StatusCode::OK);
    runtime.block_on(read(response.into_body()));
}

/// Reads the body to its end, so that the guards of the response are dropped.
async fn read(body: Body) {
    let body = axum::body::to_bytes(body, usize::MAX).await;
    assert_eq!(body.expect("a body of the handler"), "hello");
}

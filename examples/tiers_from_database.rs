//! `cargo run -p ratelimit-examples --bin tiers_from_database`, then `curl -i -H 'X-Api-Key: k-acme' 127.0.0.1:3000`: 5 pass, 2 of `k-initech`.

use std::{io, net::SocketAddr, time::Duration};

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::get,
};
use ratelimit_axum::{Key, Limiter, RateLimitLayer, Registry, TierResolver};

/// Operators change these numbers, and a reload keeps what was spent.
const POLICIES: &str = r#"
[policy.api]
limits = "2/min; fixed_window 100/d"

[policy.api.tiers]
pro = "5/min; fixed_window 1000/d"
"#;

/// Stands for a table `customer(api_key, name, plan)`. A real service stores digests of API keys.
const CUSTOMERS: [(&str, &str, Option<&str>); 2] = [
    ("k-acme", "acme", Some("pro")),
    ("k-initech", "initech", None),
];

/// `SELECT name FROM customer WHERE api_key = $1`
async fn customer_of(api_key: &str) -> Option<&'static str> {
    tokio::task::yield_now().await; // the round trip to the database
    let row = CUSTOMERS.iter().find(|(key, ..)| *key == api_key);
    row.map(|(_, name, _)| *name)
}

/// `SELECT plan FROM customer WHERE name = $1`; an error leaves the first limits of the policy.
async fn plan_of(customer: Key) -> io::Result<Option<String>> {
    eprintln!("SELECT plan of {customer}");
    tokio::task::yield_now().await;
    let key_of = |name| Key::tagged("customer", name).ok();
    let row = CUSTOMERS
        .iter()
        .find(|(_, name, _)| key_of(name).as_ref() == Some(&customer));
    Ok(row.and_then(|(.., plan)| plan.map(str::to_owned)))
}

/// Finds the customer, or answers 401, before the limit counts.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let api_key = request.headers().get("x-api-key");
    let api_key = api_key.and_then(|value| value.to_str().ok().map(str::to_owned));
    let customer = customer_of(&api_key.unwrap_or_default()).await;
    let Some(Ok(key)) = customer.map(|name| Key::tagged("customer", name)) else {
        return (StatusCode::UNAUTHORIZED, "send X-Api-Key\n").into_response();
    };
    request.extensions_mut().insert(key);
    next.run(request).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = Registry::from_toml(POLICIES)?;
    let tiers = TierResolver::new(plan_of).ttl(Duration::from_secs(60));
    let limit = RateLimitLayer::named(Limiter::in_memory(), &registry, "api")?.tier_async(tiers);
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(limit)
        .layer(middleware::from_fn(authenticate)) // added last, runs first
        .into_make_service_with_connect_info::<SocketAddr>();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

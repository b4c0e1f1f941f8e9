//! `cargo run -p ratelimit-examples --bin login_protection`, then `curl -i -H 'X-User: ann' -d '' localhost:3000/login`: the 4th gets 429.

use std::net::SocketAddr;

use axum::{Router, http::request::Parts, routing::post};
use ratelimit_axum::{
    ClientKey, FailureMode, Key, KeyError, KeyExtractor, Limiter, Policy, RateLimitLayer,
};

/// Whose account is tried. A real service takes the name from the form, and makes it lower case.
fn account(request: &Parts) -> Result<Key, KeyError> {
    let user = request.headers.get("x-user").ok_or(KeyError::Missing)?;
    Ok(Key::tagged("account", user)?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::in_memory();

    // Guessing one password: by account, from wherever it comes. Trying one password on many
    // accounts: by address. Without the store nobody logs in, rather than anybody.
    let by_account = Policy::parse("login-account", "3/min; fixed_window 20/d")?
        .with_failure_mode(FailureMode::Closed);
    let by_address =
        Policy::parse("login-address", "10/min")?.with_failure_mode(FailureMode::Closed);
    let login = post(async || "welcome").layer((
        RateLimitLayer::new(limiter.clone(), by_address),
        RateLimitLayer::new(limiter.clone(), by_account).key_by(account),
    ));

    // Sign-ups are few, and fail open: a new customer is worth more than a spammer costs.
    let sign_up =
        Policy::parse("sign-up", "sliding_window_log 2/h")?.with_failure_mode(FailureMode::Open);
    let sign_up = post(async || "signed up").layer(RateLimitLayer::new(limiter.clone(), sign_up));

    // Comments: by account where there is one, else by address; a burst of five, then one in ten seconds.
    let comment = Policy::parse("comment", "6/min burst 5")?;
    let comment = RateLimitLayer::new(limiter, comment).key_by(account.or(ClientKey::new()));
    let comment = post(async || "thanks").layer(comment);

    let app = Router::new()
        .route("/login", login)
        .route("/sign-up", sign_up)
        .route("/comment", comment)
        .into_make_service_with_connect_info::<SocketAddr>();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

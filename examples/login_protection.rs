//! `cargo run -p ratelimit-examples --bin login_protection`, then `curl -i -d 'user=ann&password=no' 127.0.0.1:3000/login`: the 6th gets 429.

use std::net::SocketAddr;

use axum::{
    Extension, Router,
    body::{Body, to_bytes},
    extract::Request,
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::post,
};
use ratelimit_axum::{FailureMode, HttpPolicy, Key, Limiter, RateLimitLayer};

/// The fields of the form.
#[derive(Clone)]
struct Attempt {
    user: String,
    password: String,
}

/// Reads the form, and makes the account the key of the request.
async fn read_form(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let Ok(form) = to_bytes(body, 4096).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let field = |wanted| {
        let mut fields = form_urlencoded::parse(&form).filter(|(name, _)| name == wanted);
        fields.next().map(|(_, value)| value.into_owned())
    };
    let (Some(user), Some(password)) = (field("user"), field("password")) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    // One account is one key, however its name is spelt. Accounts that do not exist count too.
    let user = user.trim().to_lowercase();
    let Ok(account) = Key::tagged("account", &user) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let mut request = Request::from_parts(head, Body::empty());
    request.extensions_mut().insert(account);
    request.extensions_mut().insert(Attempt { user, password });
    next.run(request).await
}

async fn login(Extension(attempt): Extension<Attempt>) -> (StatusCode, &'static str) {
    // A real service compares a slow hash of the password with the stored one.
    if attempt.user == "ann" && attempt.password == "secret" {
        (StatusCode::OK, "welcome\n")
    } else {
        (StatusCode::UNAUTHORIZED, "wrong name or password\n")
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let policy = HttpPolicy::parse("login", "sliding_window_log 10/h; 5/min by ip")?
        .with_charge_on("401".parse()?)
        .with_failure_mode(FailureMode::Closed);
    let limit = RateLimitLayer::new(Limiter::in_memory(), policy);
    let app = Router::new()
        .route("/login", post(login))
        .layer(limit)
        .layer(middleware::from_fn(read_form)) // added last, runs first
        .into_make_service_with_connect_info::<SocketAddr>();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

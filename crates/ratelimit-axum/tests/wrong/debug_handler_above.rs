use axum::debug_handler;
use ratelimit_axum::rate_limit;

#[debug_handler]
#[rate_limit("5/min")]
async fn index() -> &'static str {
    "hello"
}

fn main() {}

use ratelimit_axum::rate_limit;

#[rate_limit]
async fn login() -> &'static str {
    "hello"
}

fn main() {}

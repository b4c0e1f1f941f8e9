use ratelimit_axum::rate_limit;

#[rate_limit("5/min", burst = 10)]
async fn login() -> &'static str {
    "hello"
}

fn main() {}

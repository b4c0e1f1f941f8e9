use ratelimit_axum::rate_limit;

#[rate_limit("5/min", cost = 2, cost = 3)]
async fn login() -> &'static str {
    "hello"
}

fn main() {}

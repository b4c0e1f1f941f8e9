use ratelimit_axum::rate_limit;

#[rate_limit("5/min", on_failure = "shut")]
async fn login() -> &'static str {
    "hello"
}

fn main() {}

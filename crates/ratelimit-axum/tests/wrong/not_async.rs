use ratelimit_axum::rate_limit;

#[rate_limit("5/min")]
fn login() -> &'static str {
    "hello"
}

fn main() {}

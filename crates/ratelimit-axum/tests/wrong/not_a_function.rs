use ratelimit_axum::rate_limit;

#[rate_limit("5/min")]
struct Login;

fn main() {}

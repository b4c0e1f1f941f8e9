use ratelimit_actix::rate_limit;

#[rate_limit("5/min", policy = "login")]
async fn login() -> &'static str {
    "hello"
}

fn main() {}

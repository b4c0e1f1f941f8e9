use ratelimit_actix::rate_limit;

#[rate_limit("login")]
async fn login() -> &'static str {
    "hello"
}

fn main() {}

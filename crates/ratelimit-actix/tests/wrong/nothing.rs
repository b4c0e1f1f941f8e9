use ratelimit_actix::rate_limit;

#[rate_limit]
async fn login() -> &'static str {
    "hello"
}

fn main() {}

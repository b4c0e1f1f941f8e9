use ratelimit_actix::rate_limit;

#[rate_limit(policy = login)]
async fn login() -> &'static str {
    "hello"
}

fn main() {}

use ratelimit_actix::rate_limit;

#[rate_limit("5/min", tier = plan)]
async fn hello() -> &'static str {
    "hello"
}

fn main() {}

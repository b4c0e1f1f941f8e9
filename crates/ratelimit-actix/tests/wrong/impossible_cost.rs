use ratelimit_actix::rate_limit;

#[rate_limit("100/h; 2/min", cost = 3)]
async fn handler() -> &'static str {
    "hello"
}

fn main() {}

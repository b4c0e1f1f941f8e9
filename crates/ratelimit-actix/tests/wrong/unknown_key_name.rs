use ratelimit_actix::rate_limit;

#[rate_limit("5/min; 10/min by user")]
async fn handler() -> &'static str {
    "hello"
}

fn main() {}

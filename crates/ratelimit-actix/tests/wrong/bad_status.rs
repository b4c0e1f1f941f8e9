use ratelimit_actix::rate_limit;

#[rate_limit("5/min", charge_on = [401, "6xx"])]
async fn handler() -> &'static str {
    "hello"
}

fn main() {}

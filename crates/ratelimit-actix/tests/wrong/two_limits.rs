use ratelimit_actix::rate_limit;

#[rate_limit("5/min")]
#[rate_limit("20/h")]
async fn login() -> &'static str {
    "hello"
}

fn main() {}

use actix_web::get;
use ratelimit_actix::rate_limit;

#[rate_limit("5/min")]
#[get("/login")]
async fn login() -> &'static str {
    "hello"
}

fn main() {}

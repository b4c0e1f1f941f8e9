use ratelimit_actix::rate_limit;

#[actix_web::get("/login")]
#[rate_limit("5/min", unlimited = login_unlimited)]
async fn login() -> &'static str {
    "hello"
}

fn main() {}

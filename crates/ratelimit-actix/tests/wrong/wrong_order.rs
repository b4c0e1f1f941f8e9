use ratelimit_actix::rate_limit;

#[rate_limit("5/min")]
#[actix_web::get("/login")]
async fn login() -> &'static str {
    "hello"
}

fn main() {}

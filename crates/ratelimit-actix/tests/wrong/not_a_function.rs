use ratelimit_actix::rate_limit;

#[rate_limit("5/min")]
struct Login;

fn main() {}

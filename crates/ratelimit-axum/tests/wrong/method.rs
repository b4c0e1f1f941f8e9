use ratelimit_axum::rate_limit;

struct Shop;

impl Shop {
    #[rate_limit("5/min")]
    async fn login(&self) -> &'static str {
        "hello"
    }
}

fn main() {}

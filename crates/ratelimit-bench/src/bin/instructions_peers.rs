//! Works of other limiters and frameworks, for callgrind to watch.

use ratelimit_bench::{
    Work,
    peer::{http, memory},
    tell_counts,
};

const TIMES: u32 = 5_000;

fn main() {
    let hot = memory::MAKERS.into_iter().map(|(name, make)| {
        let mut contender = make(1, memory::KeyBudget::Plenty);
        Work::new(format!("hot.{name}"), move || (contender.ask)(0))
    });
    tell_counts(hot, TIMES);
    tell_counts(http::axum_requests(), TIMES);
    actix_web::rt::System::new().block_on(async {
        tell_counts(http::actix_requests().await, TIMES);
    });
}

use axum::http::Method;
use ratelimit_axum::rate_limit;

type M = Method;

#[rate_limit("5/min")]
#[rustfmt::skip]
async fn login(_: M, _: M, _: M, _: M, _: M, _: M, _: M, _: M, _: M, _: M, _: M, _: M, _: M, _: M, _: M, _: M, _: M) {}

fn main() {}

//! A program whose handler names a policy that its registry does not have.

use std::error::Error;

use ratelimit_axum::{Policy, Registry, install_registry, rate_limit};

#[rate_limit(policy = "logn")]
async fn login() -> &'static str {
    "hello"
}

fn main() -> Result<(), Box<dyn Error>> {
    install_registry(Registry::of([Policy::parse("login", "5/min")?]))?;
    let _: axum::Router = axum::Router::new().route("/", axum::routing::get(login));
    println!("serving");
    Ok(())
}

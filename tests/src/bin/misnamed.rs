//! A program whose handler names a policy that its registry does not have.

use std::error::Error;

use ratelimit_axum::{Policy, Registry, rate_limit, set_global_registry};

#[rate_limit(policy = "logn")]
async fn login() -> &'static str {
    "hello"
}

fn main() -> Result<(), Box<dyn Error>> {
    set_global_registry(Registry::from_policies([Policy::parse("login", "5/min")?]))?;
    let _: axum::Router = axum::Router::new().route("/", axum::routing::get(login));
    println!("serving");
    Ok(())
}

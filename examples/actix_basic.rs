//! `cargo run -p ratelimit-examples --bin actix_basic`, then `curl -i localhost:3000`: the 11th within a minute gets 429.

use actix_web::{App, HttpServer, web};
use ratelimit_actix::RateLimit;

#[actix_web::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limit = RateLimit::per_client("10/min")?;
    let server = HttpServer::new(move || {
        App::new()
            .wrap(limit.clone())
            .route("/", web::get().to(async || "hello"))
    });

    let address = std::env::args().nth(1);
    let server = server.bind(address.as_deref().unwrap_or("127.0.0.1:3000"))?;
    println!("http://{}", server.addrs()[0]);
    server.run().await?;
    Ok(())
}

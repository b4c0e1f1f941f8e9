//! `cargo run -p ratelimit-examples --bin actix_per_route`, then `curl -i localhost:3000/login`: the 3rd gets 429, `/` goes on.

use actix_web::{App, HttpServer, get, web};
use ratelimit_actix::{ClientKey, CurrentDecision, KeyExtractor, RateLimit, RouteKey, rate_limit};

/// One line for a handler, below that of its route.
#[get("/login")]
#[rate_limit("2/min")]
async fn login() -> &'static str {
    "logged in"
}

/// What the nearest limit left over.
async fn left(CurrentDecision(decision): CurrentDecision) -> String {
    let left = decision.map(|decision| decision.remaining);
    format!("{} left", left.unwrap_or_default())
}

#[actix_web::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let all = RateLimit::per_client("100/min")?;
    // Three for each client and each pattern: all of /users/1, /users/2 is one.
    let each_route = RateLimit::per_client("3/min")?
        .key_by(ClientKey::new().and(RouteKey.or_shared("no route")));
    let server = HttpServer::new(move || {
        let users = web::scope("/users")
            .wrap(each_route.clone())
            .route("/{id}", web::get().to(left));
        App::new()
            .wrap(all.clone())
            .service(login)
            .service(users)
            .route("/", web::get().to(left))
    });

    let address = std::env::args().nth(1);
    let server = server.bind(address.as_deref().unwrap_or("127.0.0.1:3000"))?;
    println!("http://{}", server.addrs()[0]);
    server.run().await?;
    Ok(())
}

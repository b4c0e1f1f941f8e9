//! An axum server that answers without deciding anything: what `cargo xtask load` compares with.

use std::error::Error;

use axum::{Router, routing::get};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = Router::new().route("/", get(async || {}));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("  listening  http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

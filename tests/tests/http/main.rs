//! The layer over real connections: HTTP/1.1 and HTTP/2, axum, and proxies in front.

mod client_key; // The vectors, through the layer's own eyes.
mod clients; // Whose budget a connection spends.
mod frameworks; // Axum, tower-http, and a client of hyper.
mod leaks; // No answer tells a key.
mod proxies; // Real ones in front.
mod rules; // What every answer keeps to.
mod server; // A server and clients to ask it.
mod streams; // Many requests on one connection.

//! axum and actix-web over real connections: the same cases, and the same answers byte for byte.

mod alike; // One table of cases for both.
mod attribute; // Handlers with a limit of their own.
mod client; // A client that sees the bytes.
mod peers; // Bugs of other adapters.
mod registry; // Policies that change while requests come.
mod server; // A server of either framework.
mod snippets; // How many lines a newcomer writes.

//! axum and actix-web over real connections: the same cases, and the same answers byte for byte.

mod alike; // One table of cases for both.
mod attribute; // Handlers with a limit of their own.
mod client; // A client that sees the bytes.
mod log; // What was logged while a test ran.
mod named; // Attributes that name a policy.
mod peers; // Bugs of other adapters.
mod policies; // Policies as one writes them: login, sign-up, comments, tiers, uploads, streams.
mod registry; // Policies that change while requests come.
mod server; // A server of either framework.
mod shared; // Several servers on one Redis.
mod snippets; // How many lines a newcomer writes.

//! axum and actix-web over real connections: the same cases, and the same answers byte for byte.

mod attribute; // Handlers with a limit of their own.
mod client; // A client that sees the bytes.
mod code_blocks; // The code blocks of pages.
mod declared_policies; // Attributes that name a policy.
mod denials; // The response and the log line of a denial.
mod log; // What was logged while a test ran.
mod moving; // The pages about moving here.
mod parity; // One table of cases for both.
mod peers; // Bugs of other adapters.
mod policies; // Policies as one writes them: login, sign-up, comments, tiers, uploads, streams.
mod readme; // The numbers of the README.
mod registry; // Policies that change while requests come.
mod rules; // Rules whose key no request can have.
mod server; // A server of either framework.
mod settings; // Every field of a policy in every adapter.
mod snippets; // How many lines a newcomer writes.
mod worker_sharing; // Several servers on one Redis.

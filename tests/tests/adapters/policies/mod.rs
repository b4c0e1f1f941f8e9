//! The policies of docs/guides/policies.md behind both frameworks, over real connections.

mod api; // A public API: tiers, keys decided together, who is exempt or blocked, what is marked.
mod connection; // Requests that stay open.
mod costs; // Uploads, downloads and tokens.
mod handlers; // The same in attributes.
mod people; // Login, sign-up and comments.
mod sessions; // Slots: streams, and connections that are upgraded.
mod site; // The service behind the limit.

pub(crate) use self::site::{Site, With, policy};

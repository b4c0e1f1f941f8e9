//! A TCP proxy that breaks connections in every way we know.

mod connection;
mod handle;
mod requests;

pub use self::handle::{Loss, Proxy};

//! The API of the console.

mod client_key;
mod config_file;
mod forecast;
mod policies;

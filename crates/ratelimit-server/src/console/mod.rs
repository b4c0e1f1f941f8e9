//! The console: a page for operators, and the JSON API behind it.
//!
//! - Every call below `/console/api/` but those of the session needs the admin token or a session cookie.
//! - Each module holds one group of calls, with its routes.

mod access;
mod assets;
mod client_key;
mod config_file;
mod forecast;
mod live;
mod policies;
mod session;
mod simulate;

use axum::Router;

use crate::app::App;

/// The page and its API.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .merge(assets::routes())
        .merge(session::routes())
        .merge(live::routes())
        .merge(policies::routes())
        .merge(forecast::routes())
        .merge(simulate::routes())
        .merge(client_key::routes())
        .merge(config_file::routes())
}

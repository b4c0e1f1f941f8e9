//! The console: a page for operators, and the JSON API behind it.
//!
//! - The files of the page are public. Every call below `/console/api/` but those of the session needs the admin token, a
//!   session cookie, or `--admin-without-token`: `access.rs` is a middleware over all of them.
//! - Each module holds one group of calls, with its routes. A handler that changes something calls
//!   `access::admit_change` first.

mod access;
mod assets;
mod client_key;
mod config_file;
mod forecast;
mod live;
mod policies;
mod session;
mod simulate;

use axum::{Router, middleware::from_fn_with_state};

pub(crate) use self::live::sample;
use crate::app::App;

/// The page and its API.
pub(crate) fn routes(app: &App) -> Router<App> {
    let api = Router::new()
        .merge(live::routes())
        .merge(policies::routes())
        .merge(forecast::routes())
        .merge(simulate::routes())
        .merge(client_key::routes())
        .merge(config_file::routes());
    Router::new()
        .merge(assets::routes())
        .merge(session::routes())
        .merge(authorized(api, app))
}

/// Routes that need authorisation.
fn authorized(api: Router<App>, app: &App) -> Router<App> {
    api.layer(from_fn_with_state(app.clone(), access::authorize))
}

/// Adds the checks of every request below `/console`.
pub(crate) fn protected(routes: Router<App>, app: &App) -> Router<App> {
    routes.layer(from_fn_with_state(app.clone(), access::protect))
}

/// Adds the headers of every response below `/console`.
pub(crate) fn with_headers(routes: Router<App>, app: &App) -> Router<App> {
    routes.layer(from_fn_with_state(app.clone(), access::add_headers))
}

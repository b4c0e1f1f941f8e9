//! When more permits of a key pass.

use axum::Router;

use crate::app::App;

pub(super) fn routes() -> Router<App> {
    Router::new()
}

//! Live numbers, as server-sent events.

use axum::Router;

use crate::app::App;

pub(super) fn routes() -> Router<App> {
    Router::new()
}

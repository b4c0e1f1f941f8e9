//! Client keys of pasted headers.

use axum::Router;

use crate::app::App;

pub(super) fn routes() -> Router<App> {
    Router::new()
}

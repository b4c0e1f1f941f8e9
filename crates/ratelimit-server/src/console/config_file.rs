//! The policy file: its text, its findings, and a reload.

use axum::Router;

use crate::app::App;

pub(super) fn routes() -> Router<App> {
    Router::new()
}

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
mod squeeze;

use axum::{Router, middleware::from_fn_with_state};

pub(crate) use self::{
    access::{check_request, is_below_console, write_headers},
    live::sample,
};
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

#[cfg(test)]
mod tests {
    use axum::{
        body::Body,
        extract::{Request, State},
        http::{Method, StatusCode},
        routing::any,
    };
    use clap::{Args as _, Command, FromArgMatches as _};
    use tower::ServiceExt as _;

    use super::*;
    use crate::{
        admin_auth::Caller,
        api_error::ApiError,
        config::{Config, Settings},
        metrics::recorder,
        session_cookie::{Session, SessionKey, unix_seconds},
    };

    const TOKEN: &str = "0123456789abcdef";

    fn app(mode: &str) -> App {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), TOKEN).expect("a written file");
        let token_file = file.path().to_str().expect("a path in UTF-8");
        let words = [
            "server",
            "--console",
            mode,
            "--admin-token-file",
            token_file,
        ];
        let matches = Settings::augment_args(Command::new("server")).get_matches_from(words);
        let settings = Settings::from_arg_matches(&matches).expect("settings");
        let config = Config::load(&settings).expect("a configuration");
        let metrics = recorder(&config.application).handle();
        App::new(&config, config.store.limiter(), config.listen, metrics)
    }

    /// The answer of a route of the API that returns the caller, and of one that changes something.
    async fn statuses(mode: &str, method: Method, headers: &[(&str, &str)]) -> [(u16, String); 2] {
        let app = app(mode);
        let read = any(async |request: Request| {
            let caller = request.extensions().get::<Caller>().copied();
            caller.expect("the middleware adds the caller").as_str()
        });
        let change = any(async |State(app): State<App>, request: Request| {
            let caller = access::admit_change(&app, &app.rules(), &request)?;
            Ok::<_, ApiError>(caller.as_str())
        });
        let routes = Router::new().route("/read", read).route("/change", change);
        let service = authorized(routes, &app).with_state(app);
        let mut found = Vec::new();
        for path in ["/read", "/change"] {
            let mut request = Request::builder().method(&method).uri(path);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let request = request.body(Body::empty()).expect("a request");
            let response = service.clone().oneshot(request).await.expect("an answer");
            let status = response.status();
            let body = axum::body::to_bytes(response.into_body(), 9_999).await;
            let body = String::from_utf8(body.expect("a body").into()).expect("a text");
            let body = if status == StatusCode::OK {
                body
            } else {
                String::new()
            };
            found.push((status.as_u16(), body));
        }
        found.try_into().expect("two answers")
    }

    fn refused(status: u16) -> (u16, String) {
        (status, String::new())
    }

    #[tokio::test]
    async fn every_call_of_the_api_needs_authorisation() {
        for headers in [
            &[][..],
            &[("authorization", "Bearer wrong")],
            &[("cookie", "ratelimit_console=1.2.0")],
        ] {
            let found = statuses("write", Method::POST, headers).await;
            assert_eq!(found, [refused(401), refused(401)], "{headers:?}");
        }
    }

    #[tokio::test]
    async fn changes_by_the_api_need_the_mode_write() {
        let token = format!("Bearer {TOKEN}");
        let key = SessionKey::of(&TOKEN.into());
        let now = unix_seconds();
        let cookie = key.cookie(Session::starting_at(now), now, false);
        let cookie = cookie.to_str().expect("a text");
        let cookie = cookie.split(';').next().expect("a cookie");
        let by_token = [("authorization", &*token)];
        let by_page = [("cookie", cookie), ("sec-fetch-site", "same-origin")];
        let ok = |by: &str| (200, by.to_owned());

        let found = statuses("read", Method::POST, &by_token).await;
        assert_eq!(found, [ok("token"), refused(403)]);
        let found = statuses("read", Method::POST, &by_page).await;
        assert_eq!(found, [ok("console"), refused(403)]);
        let found = statuses("write", Method::POST, &by_token).await;
        assert_eq!(found, [ok("token"), ok("token")]);
        let found = statuses("write", Method::POST, &by_page).await;
        assert_eq!(found, [ok("console"), ok("console")]);
        let found = statuses("write", Method::POST, &by_page[..1]).await;
        assert_eq!(found, [refused(403), refused(403)]);
    }
}

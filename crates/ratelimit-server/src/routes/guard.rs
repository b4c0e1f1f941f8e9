//! Middleware of all routes.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, HttpBody as _},
    extract::Request,
    http::{
        HeaderValue, Response, StatusCode, Version,
        header::{CACHE_CONTROL, CONNECTION},
    },
    response::IntoResponse as _,
};
use tower::{Layer, Service};
use tracing::Instrument as _;

use crate::{
    access_log::{self, AccessRecord},
    api_error::ApiError,
    app::App,
    browser_guard,
    request_id::{self, X_REQUEST_ID},
    unread_body::UnreadBody,
};
#[cfg(feature = "console")]
use crate::{config::ConsoleMode, console};

/// The state of the middleware: the application, whether only this machine can connect to the listener, whether it serves
/// the console, and the label `route` of requests without a matched path.
#[derive(Clone, Debug)]
pub(super) struct GuardState {
    app: App,
    is_loopback: bool,
    #[cfg_attr(
        not(feature = "console"),
        allow(dead_code, reason = "only the console reads it")
    )]
    has_console: bool,
    default_route: &'static str,
}

impl GuardState {
    pub(super) fn new(
        app: &App,
        listen: SocketAddr,
        has_console: bool,
        default_route: &'static str,
    ) -> GuardState {
        GuardState {
            app: app.clone(),
            is_loopback: listen.ip().to_canonical().is_loopback(),
            has_console,
            default_route,
        }
    }

    /// Checks a request before its route is called.
    fn admit(&self, request: &Request) -> Result<(), ApiError> {
        let rules = self.app.rules();
        browser_guard::admit_request(&self.app, &rules, self.is_loopback, request)?;
        #[cfg(feature = "console")]
        if self.has_console && console::is_below_console(request) {
            console::check_request(&self.app, &rules, request)?;
        }
        Ok(())
    }

    /// Forbids caching unless the route allows it, and ends the connection where it cannot go on.
    fn write_headers(&self, version: Version, response: &mut Response<Body>) {
        let no_store = HeaderValue::from_static("no-store");
        let headers = response.headers_mut();
        headers.entry(CACHE_CONTROL).or_insert(no_store);
        // The rest of an unread body would precede the next request on this connection.
        let is_cut_off = matches!(
            response.status(),
            StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE
        );
        if (self.app.is_closing() || is_cut_off) && version <= Version::HTTP_11 {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
    }

    /// Whether a request is one of the console, and the console is on.
    #[cfg(feature = "console")]
    fn serves_console(&self, request: &Request) -> bool {
        self.has_console
            && console::is_below_console(request)
            && self.app.console_mode(&self.app.rules()) != ConsoleMode::Off
    }
}

impl<S> Layer<S> for GuardState {
    type Service = Guard<S>;

    fn layer(&self, route: S) -> Guard<S> {
        Guard {
            state: self.clone(),
            route,
        }
    }
}

/// Gives the request an id and a span, refuses calls of web pages, applies the request timeout, forbids caching unless
/// the route allows it, closes connections during a shutdown, counts the response and writes the access log.
///
/// `axum::middleware::from_fn` would clone and box the route for each request: about 2,000 of 51,000 instructions of a check
/// over REST. The checks of [`admit`](GuardState::admit) are called here: as layers of their own, two of them took 9,000.
#[derive(Clone, Debug)]
pub(super) struct Guard<S> {
    state: GuardState,
    route: S,
}

impl<S> Service<Request> for Guard<S>
where
    S: Service<Request, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.route.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let state = self.state.clone();
        let id = request_id::ensure(request.headers_mut());
        let record = AccessRecord::start(&request, state.default_route);
        let span = access_log::span(&request);
        #[cfg(feature = "console")]
        let is_console = state.serves_console(&request);
        let version = request.version();
        // HTTP/1 needs none of this: a body that is not read ends the connection after the response.
        let (request, unread) = if version == Version::HTTP_2 && !request.body().is_end_stream() {
            UnreadBody::hold(request)
        } else {
            (request, UnreadBody::default())
        };
        let admitted = span.in_scope(|| state.admit(&request));
        let routed = admitted.map(|()| self.route.call(request));
        let responding = async move {
            let mut response = match routed {
                Ok(responding) => within(state.app.bounds().request, responding).await,
                Err(why) => why.into_response(),
            };
            unread.discard().await;
            state.write_headers(version, &mut response);
            #[cfg(feature = "console")]
            if is_console {
                console::write_headers(response.headers_mut());
            }
            response.headers_mut().insert(X_REQUEST_ID, id);
            record.finish(response.status());
            Ok(response)
        };
        Box::pin(responding.instrument(span))
    }
}

/// The response of a route, or 408 after `timeout`.
async fn within(
    timeout: Duration,
    responding: impl Future<Output = Result<Response<Body>, Infallible>>,
) -> Response<Body> {
    match tokio::time::timeout(timeout, responding).await {
        Ok(Ok(response)) => response,
        Err(_) => too_slow(),
    }
}

fn too_slow() -> Response<Body> {
    let status = StatusCode::REQUEST_TIMEOUT;
    ApiError::new(status, "Request timeout", "the request took too long").into_response()
}

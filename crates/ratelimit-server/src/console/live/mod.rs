//! Live numbers, as server-sent events.
//!
//! - `sampling.rs`: the task that samples once a second. `messages.rs`: the JSON of the events.
//! - A stream sends `hello` with the last 300 seconds, then a `tick` a second, and `bye` when the server drains.
//! - A stream ends without `bye` when its session expires and when the admin token changes. A browser connects again then,
//!   with the cookie that it has at that time.

mod messages;
mod sampling;

use std::{convert::Infallible, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, StatusCode},
    response::{
        IntoResponse,
        sse::{Event, KeepAlive, Sse},
    },
    routing::get,
};
use futures_util::stream;
use tokio::time::Instant;

use self::messages::Hello;
pub(crate) use self::sampling::sample;
use crate::{
    api_error::ApiError,
    app::App,
    live_feed::{MAX_VIEWERS, Viewer},
    session_cookie::{SessionKey, unix_seconds},
};

/// The time after which a browser connects again.
const RETRY: Duration = Duration::from_secs(2);
/// The time without an event after which a comment keeps the connection in use.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Tells nginx not to collect the events.
const NO_BUFFERING: (HeaderName, &str) = (HeaderName::from_static("x-accel-buffering"), "no");

pub(super) fn routes() -> Router<App> {
    Router::new().route("/console/api/live", get(watch))
}

async fn watch(State(app): State<App>, request: Request) -> Result<impl IntoResponse, ApiError> {
    if app.is_draining() {
        return Err(unavailable("the server shuts down".to_owned()));
    }
    let Some(viewer) = app.live().admit() else {
        let detail = format!("{MAX_VIEWERS} pages watch already: close one of them");
        return Err(unavailable(detail));
    };
    let stream = LiveStream::new(app, viewer, request.headers());
    let events = stream::unfold(stream, |mut stream| async move {
        let event = stream.next().await?;
        Some((Ok::<_, Infallible>(event), stream))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(([NO_BUFFERING], Sse::new(events).keep_alive(keep_alive)))
}

fn unavailable(detail: String) -> ApiError {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    ApiError::new(status, "No live numbers", detail)
}

/// The events for one viewer. Dropping it frees the viewer's place.
struct LiveStream {
    app: App,
    viewer: Viewer,
    state: StreamState,
    /// The last second that was sent.
    sent: u64,
    /// A secret of the admin token, if there is one. Another token ends the stream.
    token: Option<[u8; 32]>,
    /// The end of the session; `None` if the caller has none.
    expiry: Option<Instant>,
}

#[derive(PartialEq)]
enum StreamState {
    Starting,
    Ticking,
    Ended,
}

impl LiveStream {
    fn new(app: App, viewer: Viewer, headers: &HeaderMap) -> LiveStream {
        let rules = app.rules();
        let token = app.admin_token(&rules);
        let now = unix_seconds();
        let expiry = token.and_then(|token| {
            // A program sends the token itself, which does not expire.
            let has_token = token.is_in(headers);
            let key = (!has_token).then(|| SessionKey::of(token));
            key?.expiry_in(headers, now)
        });
        let expiry = expiry.map(|at| Instant::now() + Duration::from_secs(at.saturating_sub(now)));
        LiveStream {
            token: token_id(&app),
            app,
            viewer,
            state: StreamState::Starting,
            sent: 0,
            expiry,
        }
    }

    /// The next event, or `None` at the end.
    async fn next(&mut self) -> Option<Event> {
        match self.state {
            StreamState::Starting => {
                self.state = StreamState::Ticking;
                Some(self.hello())
            }
            StreamState::Ticking => self.next_tick().await,
            StreamState::Ended => None,
        }
    }

    fn hello(&mut self) -> Event {
        let history = self.app.sampler().history();
        self.sent = history.points().last().map_or(0, |point| point.at);
        let json = Hello::new(&self.app, &history).to_json();
        Event::default().event("hello").retry(RETRY).data(json)
    }

    async fn next_tick(&mut self) -> Option<Event> {
        loop {
            tokio::select! {
                () = self.app.drained() => {
                    self.state = StreamState::Ended;
                    return Some(Event::default().event("bye").data("{}"));
                }
                () = until(self.expiry) => return None,
                changed = self.viewer.ticks.changed() => changed.ok()?,
            }
            if self.token != token_id(&self.app) {
                return None;
            }
            let tick = self.viewer.ticks.borrow_and_update().clone();
            // The history of `hello` has this second already.
            if tick.at <= self.sent {
                continue;
            }
            self.sent = tick.at;
            let id = tick.at.to_string();
            return Some(Event::default().event("tick").id(id).data(tick.json));
        }
    }
}

/// Tells one admin token from another.
fn token_id(app: &App) -> Option<[u8; 32]> {
    let token = app.rules();
    let token = app.admin_token(&token);
    token.map(|token| token.derive(b"console live"))
}

/// Completes at that moment, or never.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

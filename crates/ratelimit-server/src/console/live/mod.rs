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
            // The history of `hello` has this second already. A clock that was set back is no reason to skip seconds.
            if tick.at == self.sent {
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

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::{
        config::{Config, Settings},
        live_feed::LiveTick,
        metrics::recorder,
    };

    fn app() -> App {
        let config = Config::load(&Settings::default()).unwrap();
        let metrics = recorder("test").handle();
        App::new(&config, config.store.limiter(), config.listen, metrics)
    }

    fn stream(app: &App) -> LiveStream {
        let viewer = app.live().admit().unwrap();
        LiveStream::new(app.clone(), viewer, &HeaderMap::new())
    }

    fn publish(app: &App, at: u64) {
        app.live().publish(|| LiveTick {
            at,
            json: "{}".into(),
        });
    }

    /// The next event as it is sent.
    async fn next(stream: &mut LiveStream) -> Option<String> {
        let event = tokio::time::timeout(Duration::from_secs(60), stream.next());
        let event = event.await.expect("no event ever came")?;
        let events = stream::iter([Ok::<_, Infallible>(event)]);
        let body = Sse::new(events).into_response().into_body();
        let bytes = body.collect().await.unwrap().to_bytes();
        Some(String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_stream_that_is_not_read_gets_the_newest_tick_and_holds_no_other_one() {
        let app = app();
        let (mut slow, mut fast) = (stream(&app), stream(&app));
        assert!(next(&mut fast).await.unwrap().contains("event: hello\n"));
        for at in 1..=3 {
            publish(&app, at);
            let expected = format!("event: tick\nid: {at}\ndata: {{}}\n\n");
            assert_eq!(next(&mut fast).await, Some(expected));
        }

        assert!(next(&mut slow).await.unwrap().contains("event: hello\n"));
        assert!(next(&mut slow).await.unwrap().contains("id: 3\n"));
        app.drain();
        for stream in [&mut slow, &mut fast] {
            let bye = "event: bye\ndata: {}\n\n".to_owned();
            assert_eq!(next(stream).await, Some(bye));
            assert_eq!(next(stream).await, None);
        }
    }

    #[tokio::test]
    async fn a_second_of_the_history_is_not_sent_again() {
        let app = app();
        let mut stream = stream(&app);
        app.sampler().sample(7, Duration::from_secs(1));
        publish(&app, 7);
        let hello = next(&mut stream).await.unwrap();
        assert!(hello.contains("\"t\":[7]"), "{hello}");

        // The tick of the history is skipped while the stream waits.
        let later = async {
            tokio::task::yield_now().await;
            publish(&app, 8);
        };
        let (tick, ()) = tokio::join!(next(&mut stream), later);
        assert!(tick.unwrap().contains("id: 8\n"));
    }
}

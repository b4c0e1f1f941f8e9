//! Live numbers, as server-sent events.
//!
//! - `sampling.rs`: the task that samples once a second. `messages.rs`: the JSON of the events.
//! - A stream sends `hello` with the last 300 seconds, then a `tick` a second, and `bye` when the server drains.
//! - A stream ends without `bye` when its session expires and when the admin token changes. A browser connects again then,
//!   with the cookie that it has at that time.

mod messages;
mod sampling;

use std::{convert::Infallible, task::Poll, time::Duration};

use axum::{
    Extension, Router,
    extract::State,
    http::{HeaderName, StatusCode, header::CACHE_CONTROL},
    response::{
        IntoResponse,
        sse::{Event, KeepAlive, Sse},
    },
    routing::get,
};
use futures_util::{Stream, stream};
use tokio::time::Instant;

use self::messages::Hello;
pub(crate) use self::sampling::sample;
use crate::{
    admin_auth::{AdminAccess, token_id},
    api_error::ApiError,
    app::App,
    live_feed::{MAX_VIEWERS, Viewer},
    session_cookie::unix_seconds,
};

/// The time after which a browser connects again.
const RETRY: Duration = Duration::from_secs(2);
/// The time without an event after which a comment keeps the connection in use.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Tells nginx not to collect the events.
const NO_BUFFERING: (HeaderName, &str) = (HeaderName::from_static("x-accel-buffering"), "no");
/// In place of axum's `no-cache`, as all calls of the API.
const NO_STORE: (HeaderName, &str) = (CACHE_CONTROL, "no-store");

pub(super) fn routes() -> Router<App> {
    Router::new().route("/console/api/live", get(watch))
}

async fn watch(
    State(app): State<App>,
    Extension(admission): Extension<AdminAccess>,
) -> Result<impl IntoResponse, ApiError> {
    if app.is_draining() {
        return Err(unavailable("the server shuts down".to_owned()));
    }
    let Some(viewer) = app.live().admit() else {
        let detail = format!("{MAX_VIEWERS} pages watch already: close one of them");
        return Err(unavailable(detail));
    };
    let events = LiveStream::new(app, viewer, admission).into_events();
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    let headers = [NO_BUFFERING, NO_STORE];
    Ok((headers, Sse::new(events).keep_alive(keep_alive)))
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
    /// Another token than the one that admitted the viewer ends the stream.
    token_id: Option<[u8; 32]>,
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
    fn new(app: App, viewer: Viewer, admission: AdminAccess) -> LiveStream {
        let remaining = |expiry: u64| expiry.saturating_sub(unix_seconds());
        let expiry = admission.expiry.map(remaining);
        LiveStream {
            app,
            viewer,
            state: StreamState::Starting,
            sent: 0,
            token_id: admission.token_id,
            expiry: expiry.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
        }
    }

    /// The events until the end. Each poll tells the feed that the viewer still reads.
    fn into_events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        let place = self.viewer.place.clone();
        let events = stream::unfold(self, |mut stream| async move {
            let event = stream.next().await?;
            Some((Ok::<_, Infallible>(event), stream))
        });
        let mut events = Box::pin(events);
        stream::poll_fn(move |context| {
            if !place.mark_polled() {
                // The place has gone to another viewer. A browser that thaws the page connects again.
                return Poll::Ready(None);
            }
            events.as_mut().poll_next(context)
        })
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
            if self.token_id != current_token_id(&self.app) {
                return None;
            }
            let tick = self.viewer.ticks.borrow_and_update().clone();
            // The history of `hello` has this second already. A clock that was set back skips nothing.
            if tick.at == self.sent {
                continue;
            }
            self.sent = tick.at;
            let id = tick.at.to_string();
            return Some(Event::default().event("tick").id(id).data(tick.json));
        }
    }
}

fn current_token_id(app: &App) -> Option<[u8; 32]> {
    app.admin_token(&app.rules()).map(token_id)
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
    use futures_util::StreamExt as _;
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::{
        admin_auth::Caller,
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
        let admission = AdminAccess {
            caller: Caller::Local,
            expiry: None,
            token_id: None,
        };
        LiveStream::new(app.clone(), viewer, admission)
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

    /// hyper polls no stream whose connection takes no bytes.
    #[tokio::test]
    async fn a_stream_that_is_not_polled_for_a_minute_ends_when_its_place_is_taken() {
        let app = app();
        let mut unread = Box::pin(stream(&app).into_events());
        assert!(unread.next().await.is_some());
        let mut read: Vec<_> = (1..MAX_VIEWERS)
            .map(|_| Box::pin(stream(&app).into_events()))
            .collect();

        app.live().age_places(Duration::from_secs(60));
        for events in &mut read {
            assert!(events.next().await.is_some());
        }
        let _new = app.live().admit().expect("the place of the unread stream");
        publish(&app, 1);

        assert!(unread.next().await.is_none());
        assert!(read[0].next().await.is_some());
        assert!(app.live().admit().is_none());
    }

    #[tokio::test]
    async fn a_stream_is_bound_to_the_session_and_the_token_that_admitted_it() {
        let app = app();
        let of = |expiry, token_id| {
            let admission = AdminAccess {
                caller: Caller::Console,
                expiry,
                token_id,
            };
            LiveStream::new(app.clone(), app.live().admit().unwrap(), admission)
        };
        let mut ended = of(Some(unix_seconds()), None);
        let mut of_old_token = of(None, Some([7; 32]));

        for stream in [&mut ended, &mut of_old_token] {
            assert!(next(stream).await.unwrap().contains("event: hello\n"));
        }
        assert_eq!(next(&mut ended).await, None);
        publish(&app, 1);
        assert_eq!(next(&mut of_old_token).await, None);
    }
}

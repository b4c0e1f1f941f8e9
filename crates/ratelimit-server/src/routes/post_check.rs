//! The fast path to `POST` of a check.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::Body,
    extract::{Request, State},
    http::Response,
    response::IntoResponse as _,
};
use tower::Service;

use super::check;
use crate::app::App;

/// `POST` of a check, as a service.
#[derive(Clone, Debug)]
pub(super) struct PostCheck(pub(super) App);

impl Service<Request> for PostCheck {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let app = self.0.clone();
        Box::pin(async { Ok(check::post(State(app), request).await.into_response()) })
    }
}

#[cfg(test)]
mod tests {
    use axum::{
        Router,
        http::{
            HeaderMap, Method, Version,
            header::{CONTENT_LENGTH, CONTENT_TYPE, HOST},
        },
    };
    use bytes::Bytes;
    use metrics::with_local_recorder;
    use ratelimit_core::{Clock, Limiter, MemoryStore, Timestamp};

    use super::{super::CHECK_PATH, *};
    use crate::{
        config::{Config, Settings},
        metrics::{HTTP_REQUESTS, recorder},
    };

    /// Status, headers and body of a response.
    type Answer = (u16, HeaderMap, Bytes);

    /// Valid and invalid requests, which are sent in this order.
    fn requests() -> Vec<Request> {
        let too_long = format!(r#"{{"key":"{}"}}"#, "k".repeat(1 << 20));
        let bodies = [
            r#"{"key":"alice"}"#,
            r#"{"key":"alice","permits":1000000000}"#,
            r#"{"checks":[{"key":"bob"},{"key":"carol"}]}"#,
            r#"{"checks":[{"key":"bob"},{"key":"carol"}],"together":true}"#,
            r#"{"key":"alice","unknown":1}"#,
            r#"["alice"]"#,
            "",
            &too_long,
        ];
        let post = |body: &str| {
            Request::post(CHECK_PATH)
                .header(CONTENT_TYPE, "application/json")
                .header(HOST, "localhost:8080")
                .header("x-request-id", "one-id")
                .body(Body::from(body.to_owned()))
                .expect("a request")
        };
        let mut requests: Vec<Request> = bodies.into_iter().map(post).collect();
        let mut change = |to: fn(&mut Request)| {
            let mut request = post(bodies[0]);
            to(&mut request);
            requests.push(request);
        };
        change(|request| *request.uri_mut() = "/api/v1/rate-limit/check?key=x".parse().unwrap());
        change(|request| *request.uri_mut() = "/api/v1/rate-limit/check/".parse().unwrap());
        change(|request| *request.uri_mut() = "/api/v1/rate-limit/%63heck".parse().unwrap());
        change(|request| *request.method_mut() = Method::PUT);
        change(|request| *request.method_mut() = Method::HEAD);
        change(|request| {
            request.headers_mut().remove(CONTENT_TYPE);
        });
        change(|request| {
            request.headers_mut().remove(CONTENT_TYPE);
            *request.version_mut() = Version::HTTP_2;
        });
        change(|request| {
            let headers = request.headers_mut();
            headers.insert(HOST, "evil.example".parse().unwrap());
        });
        change(|request| {
            let headers = request.headers_mut();
            headers.insert("sec-fetch-site", "cross-site".parse().unwrap());
        });
        requests
    }

    fn app() -> App {
        let config = Config::load(&Settings::default()).expect("the defaults");
        let clock = Clock::manual(Timestamp::from_micros(1_700_000_000_000_000));
        let limiter = Limiter::new(MemoryStore::new().clock(clock));
        let metrics = recorder("unused").handle();
        App::new(&config, limiter, config.listen, metrics)
    }

    /// The answers to all requests, and the counts of responses afterwards.
    fn answers<F>(call: impl Fn(Request) -> F) -> (Vec<Answer>, Vec<String>)
    where
        F: Future<Output = Result<Response<Body>, Infallible>>,
    {
        let recorder = recorder("test");
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        let answer = |request| async {
            let Ok(response) = call(request).await;
            let (head, body) = response.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await;
            (head.status.as_u16(), head.headers, body.expect("a body"))
        };
        let answers = with_local_recorder(&recorder, || {
            let answers = requests().into_iter();
            answers
                .map(|request| runtime.block_on(answer(request)))
                .collect()
        });
        let metrics = recorder.handle().render();
        let counts = metrics
            .lines()
            .filter(|line| line.starts_with(HTTP_REQUESTS));
        (answers, counts.map(str::to_owned).collect())
    }

    #[test]
    fn a_check_without_the_router_is_answered_and_counted_as_with_it() {
        let listener = app().listener_routes(Router::new());
        let router = app().router();

        let (mut direct, counted_direct) = answers(|request| listener.call(request));
        let (mut expected, counted) = answers(|request| router.clone().call(request));

        // The router adds the length, and the connection does where it is missing.
        let mut is_missing = Vec::new();
        for (answer, expected) in direct.iter_mut().zip(&mut expected) {
            let lengths = [answer, expected].map(|(_, headers, _)| headers.remove(CONTENT_LENGTH));
            is_missing.push(lengths[0].is_none() && lengths[1].is_some());
        }
        assert!(is_missing[0], "the fast path is taken");
        assert_eq!(direct, expected);
        assert_eq!(counted_direct, counted);
        for status in [200, 400, 403, 405, 413, 415, 421, 429] {
            let labels = format!("route=\"{CHECK_PATH}\",status=\"{status}\"");
            assert!(
                counted.iter().any(|line| line.contains(&labels)),
                "{labels}"
            );
        }
    }
}

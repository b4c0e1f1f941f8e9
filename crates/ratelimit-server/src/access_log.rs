//! The access log, and the span and the counter of each request.

use std::{net::SocketAddr, time::Instant};

use axum::{
    extract::{MatchedPath, Request},
    http::{Method, StatusCode},
};
use metrics::counter;
use tracing::{Span, field::Empty};

use crate::{client::Peer, metrics::HTTP_REQUESTS, request_id, trace_context::TraceParent};

/// The target of access lines and of the spans of requests.
const TARGET: &str = "ratelimit_server::access";

/// The label of requests that no route matches.
pub(crate) const NO_ROUTE: &str = "none";

/// A request in progress.
pub(crate) struct AccessRecord {
    route: Option<MatchedPath>,
    /// The label without a matched path.
    default_route: &'static str,
    logged: Option<LoggedRequest>,
}

/// The part that only a log line needs.
struct LoggedRequest {
    method: Method,
    peer: Option<SocketAddr>,
    started: Instant,
}

impl AccessRecord {
    /// Starts the record of a request. Without the access log it reads no clock and copies no method.
    pub(crate) fn start(request: &Request, default_route: &'static str) -> AccessRecord {
        let is_logged = tracing::enabled!(target: TARGET, tracing::Level::DEBUG);
        AccessRecord {
            route: request.extensions().get::<MatchedPath>().cloned(),
            default_route,
            logged: is_logged.then(|| LoggedRequest {
                method: request.method().clone(),
                peer: Peer::of(request.extensions()),
                started: Instant::now(),
            }),
        }
    }

    /// Counts the response, and logs it if the access log is on.
    pub(crate) fn finish(&self, status: StatusCode) {
        let route = self.route.as_ref();
        let route = route.map_or(self.default_route, MatchedPath::as_str);
        let label = status.as_str().to_owned();
        counter!(HTTP_REQUESTS, "route" => route.to_owned(), "status" => label).increment(1);
        let Some(logged) = &self.logged else { return };
        tracing::debug!(
            target: TARGET,
            method = %logged.method,
            route,
            status = status.as_u16(),
            elapsed_us = u64::try_from(logged.started.elapsed().as_micros()).unwrap_or(u64::MAX),
            peer = logged.peer.map(tracing::field::display),
            "request"
        );
    }
}

/// The span of a request, with its id and its trace context; disabled without the access log.
pub(crate) fn span(request: &Request) -> Span {
    let headers = request.headers();
    let span = tracing::debug_span!(
        target: TARGET,
        "http",
        request_id = request_id::of(headers),
        trace_id = Empty,
        parent_id = Empty,
    );
    if !span.is_disabled()
        && let Some(context) = TraceParent::of(headers)
    {
        span.record("trace_id", context.trace_id);
        span.record("parent_id", context.parent_id);
    }
    span
}

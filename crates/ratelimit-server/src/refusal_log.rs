//! Log lines about refused calls.

use std::{
    net::SocketAddr,
    sync::Mutex,
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, request::Parts};
use metrics::counter;

use crate::{
    api_error::ApiError, app::App, client::Peer, metrics::REFUSED_CALLS, query::Query, request_id,
};

/// Shortest time between two lines.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(10);

/// Logs refused admin calls: the first at once, then at most one every 10 seconds with the number left out.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog(Mutex<Refusals>);

#[derive(Debug, Default)]
struct Refusals {
    logged_at: Option<Instant>,
    left_out: u64,
}

impl RefusalLog {
    pub(crate) fn log(&self, path: &str, peer: Option<SocketAddr>, headers: &HeaderMap, why: &str) {
        let Some(left_out) = self.count(Instant::now()) else {
            return;
        };
        tracing::warn!(
            target: "ratelimit_server::audit",
            path,
            peer = peer.map(tracing::field::display),
            request_id = request_id::of(headers),
            left_out,
            "refused an admin call: {why}"
        );
    }

    /// Logs a call that no correct caller sends.
    fn log_bad_call(&self, reason: BadCall, parts: &Parts, why: &str) {
        let Some(left_out) = self.count(Instant::now()) else {
            return;
        };
        tracing::warn!(
            path = parts.uri.path(),
            peer = Peer::of(&parts.extensions).map(tracing::field::display),
            request_id = request_id::of(&parts.headers),
            reason = reason.as_str(),
            left_out,
            "refused a call, and charged nothing: {why}"
        );
    }

    /// The number of refusals that were not logged since the last line, if it is time for a line.
    fn count(&self, now: Instant) -> Option<u64> {
        let mut refusals = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_recent = |at: Instant| now.duration_since(at) < REFUSAL_INTERVAL;
        if refusals.logged_at.is_some_and(is_recent) {
            refusals.left_out += 1;
            return None;
        }
        refusals.logged_at = Some(now);
        Some(std::mem::take(&mut refusals.left_out))
    }
}

const BAD_CALLS: usize = 6;

/// A log for each reason, so that the lines about one do not hide those about another.
#[derive(Debug, Default)]
pub(crate) struct BadCallLogs([RefusalLog; BAD_CALLS]);

impl BadCallLogs {
    fn of(&self, reason: BadCall) -> &RefusalLog {
        &self.0[reason as usize]
    }
}

/// Why a call was refused that a misconfigured caller sends: the label `reason` of [`REFUSED_CALLS`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum BadCall {
    /// No policy or algorithm has that name.
    UnknownPolicy,
    /// The call names neither policy nor algorithm, and the server requires one.
    NoPolicy,
    /// The query has a parameter that the call does not take.
    UnknownParameter,
    /// The call lacks the key of a limit `by NAME`.
    MissingKey,
    /// The key of the call does not match the pattern of the server, or a parameter is malformed.
    BadParameter,
    /// The policy has rules about paths, and the proxy sends none.
    NoPath,
}

impl BadCall {
    pub(crate) const ALL: [BadCall; BAD_CALLS] = [
        BadCall::UnknownPolicy,
        BadCall::NoPolicy,
        BadCall::UnknownParameter,
        BadCall::MissingKey,
        BadCall::BadParameter,
        BadCall::NoPath,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            BadCall::UnknownPolicy => "unknown_policy",
            BadCall::NoPolicy => "no_policy",
            BadCall::UnknownParameter => "unknown_parameter",
            BadCall::MissingKey => "missing_key",
            BadCall::BadParameter => "bad_parameter",
            BadCall::NoPath => "no_path",
        }
    }
}

impl App {
    /// Counts and logs a call that a misconfigured caller sends, and returns the error to answer with.
    pub(crate) fn refuse_call(&self, reason: BadCall, parts: &Parts, detail: String) -> ApiError {
        counter!(REFUSED_CALLS, "reason" => reason.as_str()).increment(1);
        self.bad_calls()
            .of(reason)
            .log_bad_call(reason, parts, &detail);
        match reason {
            BadCall::UnknownPolicy => ApiError::unknown_policy(detail),
            _ => ApiError::bad_request(detail),
        }
    }

    /// The same for a key or another parameter, with the error about it.
    pub(crate) fn bad_parameter(&self, parts: &Parts, why: &ApiError) -> ApiError {
        self.refuse_call(BadCall::BadParameter, parts, why.detail().to_owned())
    }

    /// Refuses a parameter in the query that is not in `known`.
    pub(crate) fn check_parameters(&self, parts: &Parts, known: &[&str]) -> Result<(), ApiError> {
        match Query::of(parts).unknown(known) {
            Some(why) => Err(self.refuse_call(BadCall::UnknownParameter, parts, why)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use clap::Parser as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{Cli, Config, recorder};

    #[tokio::test]
    async fn mistakes_of_a_proxy_are_counted_by_their_reason() {
        let recorder = recorder("test");
        let _local = metrics::set_default_local_recorder(&recorder);
        let args = [
            "ratelimit-server",
            "--policy",
            "tenants=5/min by tenant",
            "--key-pattern",
            "user:[0-9]+",
        ];
        let config = Config::load(&Cli::parse_from(args).settings).unwrap();
        let limiter = config.store.limiter();
        let app = App::new(&config, limiter, config.listen, recorder.handle());

        for (query, reason) in [
            ("policy=tenants&key=user:1", "missing_key"),
            (
                "policy=tenants&key=user:1&keys.tenant=user:1&denied=500",
                "bad_parameter",
            ),
            ("policy=tenants&key=1&keys.tenant=user:1", "bad_parameter"),
            ("policy=tenants&key=user:1&keys.tenant=1", "bad_parameter"),
        ] {
            let count = || {
                let metrics = recorder.handle().render();
                let label = format!("reason=\"{reason}\"");
                let mut lines = metrics.lines();
                let line =
                    lines.find(|line| line.starts_with(REFUSED_CALLS) && line.contains(&label));
                let count = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
                count.unwrap_or(0)
            };
            let before: u64 = count();
            let call = format!("/api/v1/rate-limit/forward-auth?{query}");
            let call = Request::get(call).body(Body::empty()).unwrap();

            let answer = app.router().oneshot(call).await.unwrap();

            assert_eq!(answer.status(), 400, "{query}");
            assert_eq!(count(), before + 1, "{query}");
        }
    }

    #[test]
    fn refusals_are_logged_at_most_every_ten_seconds_with_their_number() {
        let log = RefusalLog::default();
        let start = Instant::now();

        assert_eq!(log.count(start), Some(0));
        for _ in 0..3 {
            assert_eq!(log.count(start + Duration::from_secs(9)), None);
        }
        assert_eq!(log.count(start + Duration::from_secs(10)), Some(3));
    }

    #[test]
    fn each_reason_has_a_log_of_its_own() {
        let logs = BadCallLogs::default();
        let start = Instant::now();

        for reason in BadCall::ALL {
            assert_eq!(logs.of(reason).count(start), Some(0), "{reason:?}");
            assert_eq!(logs.of(reason).count(start), None, "{reason:?}");
        }
    }
}

//! The gRPC service `ShouldRateLimit`, and its health service.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use axum::Router;
use metrics::{Counter, counter};
use ratelimit_core::Clock;
use ratelimit_envoy::{
    ResolvedRequest, ResponseOptions, decide, give_back,
    proto::envoy::service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse,
        rate_limit_response::Code,
        rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
    },
};
use tonic::{Request, Response, Status, server::NamedService as _, service::Routes};
use tonic_health::{
    ServingStatus,
    server::{HealthReporter, health_reporter},
};

use crate::{
    app::App,
    envoy::{
        CurrentRules,
        grpc_timeout::decision_deadline,
        quota::{QuotaEndpoint, QuotaServer},
    },
    metrics::{ENVOY_IGNORED, ENVOY_REQUESTS, ENVOY_UNKNOWN_DOMAINS},
};

/// The largest request, in bytes. Envoy sends the values of headers, up to 8 MiB of them, in each descriptor that names
/// them. A request that is refused would pass at Envoy.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// The names under which the health service reports the state of the server.
const HEALTH_NAMES: [&str; 4] = [
    "",
    "ratelimit",
    RateLimitServiceServer::<RateLimitEndpoint>::NAME,
    QuotaServer::NAME,
];

/// The rate limit service of Envoy.
///
/// - No bytes of a client make a call fail: Envoy lets a request pass when the call fails.
/// - A request of a domain without rules passes, and is counted.
/// - A call is answered before its caller's `grpc-timeout`, by the failure mode if need be.
#[derive(Clone)]
pub(crate) struct RateLimitEndpoint {
    app: App,
    rules: Arc<CurrentRules>,
    options: ResponseOptions,
    clock: Clock,
    counters: Arc<EnvoyCounters>,
}

/// Handles of the counters, and the warnings that were logged.
struct EnvoyCounters {
    ok: Counter,
    over_limit: Counter,
    invalid: Counter,
    unknown_domains: Counter,
    ignored_limits: Counter,
    failed_credits: Counter,
    has_warned_of_limits: AtomicBool,
    /// Whether the last credit failed.
    is_failing_credits: AtomicBool,
}

impl RateLimitEndpoint {
    pub(crate) fn new(
        app: App,
        rules: Arc<CurrentRules>,
        options: ResponseOptions,
    ) -> RateLimitEndpoint {
        let requests = |code: &'static str| counter!(ENVOY_REQUESTS, "code" => code);
        let ignored = |part: &'static str| counter!(ENVOY_IGNORED, "part" => part);
        RateLimitEndpoint {
            app,
            rules,
            options,
            clock: Clock::system(),
            counters: Arc::new(EnvoyCounters {
                ok: requests("ok"),
                over_limit: requests("over_limit"),
                invalid: requests("invalid"),
                unknown_domains: counter!(ENVOY_UNKNOWN_DOMAINS),
                ignored_limits: ignored("limit"),
                failed_credits: ignored("negative_hits"),
                has_warned_of_limits: AtomicBool::new(false),
                is_failing_credits: AtomicBool::new(false),
            }),
        }
    }

    /// The routes of the service, of the quota service and of their health service, which reports `NOT_SERVING` when the server drains.
    pub(crate) async fn router(self) -> Router {
        let (reporter, health) = health_reporter();
        set_health(&reporter, ServingStatus::Serving).await;
        let app = self.app.clone();
        tokio::spawn(async move {
            app.drained().await;
            set_health(&reporter, ServingStatus::NotServing).await;
        });
        let quota = QuotaEndpoint::new(self.app.clone(), Arc::clone(&self.rules)).server();
        let service =
            RateLimitServiceServer::new(self).max_decoding_message_size(MAX_MESSAGE_BYTES);
        Routes::new(service)
            .add_service(health)
            .add_service(quota)
            .prepare()
            .into_axum_router()
    }

    /// Counts limits of a request that have no effect, and logs the first.
    fn report_ignored_limits(&self, resolved: &ResolvedRequest<'_>) {
        let limits = resolved.ignored_overrides();
        if limits == 0 {
            return;
        }
        self.counters.ignored_limits.increment(limits as u64);
        let has_warned = &self.counters.has_warned_of_limits;
        if !has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "Envoy sends a limit with a descriptor that cannot be counted: the limit of the rule applies"
            );
        }
    }

    /// Gives negative hits back, and returns at the deadline at the latest.
    ///
    /// The task goes on when the caller leaves, so a failure is counted in any case.
    async fn give_back(&self, resolved: &ResolvedRequest<'_>, deadline: Option<Instant>) {
        let Some(credits) = give_back(self.app.limiter(), resolved) else {
            return;
        };
        let counters = Arc::clone(&self.counters);
        let task = tokio::spawn(async move {
            let result = credits.await;
            let was_failing = &counters.is_failing_credits;
            let was_failing = was_failing.swap(result.is_err(), Ordering::Relaxed);
            if let Err(error) = result {
                counters.failed_credits.increment(1);
                if !was_failing {
                    tracing::warn!(%error, "negative hits of Envoy are not given back");
                }
            }
        });
        // The task does not panic, and its result is counted there.
        let _ = match deadline {
            Some(deadline) => tokio::time::timeout_at(deadline.into(), task).await.is_ok(),
            None => task.await.is_ok(),
        };
    }
}

async fn set_health(reporter: &HealthReporter, status: ServingStatus) {
    for name in HEALTH_NAMES {
        reporter.set_service_status(name, status).await;
    }
}

#[tonic::async_trait]
impl RateLimitService for RateLimitEndpoint {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let deadline = decision_deadline(request.metadata(), Instant::now());
        let rules = self.rules.get();
        let request = request.into_inner();
        let resolved = rules.resolve(&request).map_err(|error| {
            self.counters.invalid.increment(1);
            Status::invalid_argument(error.to_string())
        })?;
        if !resolved.is_known_domain() {
            self.counters.unknown_domains.increment(1);
        }
        self.report_ignored_limits(&resolved);
        // The answer to credits alone has the numbers after them.
        let is_credit = resolved.has_only_credits();
        if is_credit {
            self.give_back(&resolved, deadline).await;
        }
        let verdicts = decide(self.app.limiter(), &resolved, deadline).await;
        // A request that is denied gives nothing back, or each repetition would give back again.
        if !is_credit && resolved.is_allowed(&verdicts) {
            self.give_back(&resolved, deadline).await;
        }
        let response = resolved.response(&verdicts, self.clock.now(), self.options);
        match response.overall_code() {
            Code::OverLimit => self.counters.over_limit.increment(1),
            Code::Ok | Code::Unknown => self.counters.ok.increment(1),
        }
        Ok(Response::new(response))
    }
}

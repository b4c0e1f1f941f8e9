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
    InvalidRequest, ResolvedRequest, ResponseOptions, decide, give_back,
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
use tower::Layer as _;

use crate::{
    app::App,
    config::{EnvoyConfig, LimitHeaderNames},
    envoy::{
        CurrentRules,
        grpc_timeout::decision_deadline,
        limit_headers::add_limit_headers,
        message_guard::{MessageBounds, MessageGuardLayer},
        quota::{QuotaEndpoint, QuotaServer},
        ratelimit_metrics::RatelimitMetrics,
        reflection::add_reflection,
    },
    metrics::{ENVOY_IGNORED, ENVOY_REQUESTS, ENVOY_UNKNOWN_DOMAINS},
};

/// The names under which the health service reports the state of the server.
const HEALTH_NAMES: [&str; 4] = ["", "ratelimit", SERVICE_NAME, QuotaServer::NAME];

const SERVICE_NAME: &str = RateLimitServiceServer::<RateLimitEndpoint>::NAME;
/// The path of the call. A route of its own saves 2,300 of 69,000 instructions a call: tonic's route captures the name of
/// the method.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const STREAM_QUOTAS: &str =
    "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
const HEALTH_SERVICE_NAME: &str = "grpc.health.v1.Health";

/// The rate limit service of Envoy.
///
/// - No bytes of a client make a call fail: Envoy lets a request pass when the call fails.
/// - A request of a domain without rules passes, and is counted.
/// - A call is answered before its caller's `grpc-timeout`, by the failure mode if need be.
#[derive(Clone)]
pub(crate) struct RateLimitEndpoint {
    app: App,
    rules: Arc<CurrentRules>,
    options: AnswerOptions,
    clock: Clock,
    counters: Arc<EnvoyCounters>,
    /// The metrics of Envoy's own rate limit server, if they are counted.
    ratelimit_metrics: Option<Arc<RatelimitMetrics>>,
}

/// How requests are answered.
#[derive(Clone)]
struct AnswerOptions {
    response: ResponseOptions,
    headers: Option<LimitHeaderNames>,
    is_shadow: bool,
    has_reflection: bool,
}

/// Handles of the counters, and the warnings that were logged.
struct EnvoyCounters {
    ok: Counter,
    over_limit: Counter,
    /// Requests over the limit that pass.
    shadow: Counter,
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
        config: &EnvoyConfig,
    ) -> RateLimitEndpoint {
        let requests = |code: &'static str| counter!(ENVOY_REQUESTS, "code" => code);
        let ignored = |part: &'static str| counter!(ENVOY_IGNORED, "part" => part);
        RateLimitEndpoint {
            app,
            rules,
            options: AnswerOptions {
                response: config.response,
                headers: config.response_headers.clone(),
                is_shadow: config.is_shadow,
                has_reflection: config.has_reflection,
            },
            ratelimit_metrics: config
                .ratelimit_metrics
                .map(|ratio| Arc::new(RatelimitMetrics::new(ratio))),
            clock: Clock::system(),
            counters: Arc::new(EnvoyCounters {
                ok: requests("ok"),
                over_limit: requests("over_limit"),
                shadow: requests("shadow"),
                invalid: requests("invalid"),
                unknown_domains: counter!(ENVOY_UNKNOWN_DOMAINS),
                ignored_limits: ignored("limit"),
                failed_credits: ignored("negative_hits"),
                has_warned_of_limits: AtomicBool::new(false),
                is_failing_credits: AtomicBool::new(false),
            }),
        }
    }

    /// The routes of the service, of the quota service and of their health service, which reports `NOT_SERVING` until there
    /// are rules and when the server drains. Streams of the latter end after the drain delay, so that they do not hold the
    /// shutdown up.
    pub(crate) async fn router(self) -> Router {
        let (mut reporter, health) = health_reporter();
        let app = self.app.clone();
        let status = if app.has_envoy_rules() {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        set_health(&reporter, status).await;
        tokio::spawn(async move {
            tokio::select! {
                // Rules that come first while the server drains do not make it serve.
                biased;
                () = app.drained() => {}
                () = app.envoy_rules_loaded() => {
                    set_health(&reporter, ServingStatus::Serving).await;
                    app.drained().await;
                }
            }
            set_health(&reporter, ServingStatus::NotServing).await;
            tokio::time::sleep(app.bounds().drain).await;
            for name in HEALTH_NAMES {
                reporter.clear_service_status(name).await;
            }
        });
        let has_reflection = self.options.has_reflection;
        let quota = QuotaEndpoint::new(self.app.clone(), Arc::clone(&self.rules)).server();
        let budget = self.app.envoy_memory_budget().clone();
        let time_limit = self.app.bounds().request;
        let guard = |bounds| MessageGuardLayer {
            bounds,
            time_limit,
            budget: budget.clone(),
        };
        let max_bytes = MessageBounds::RATE_LIMIT.max_bytes;
        let service = RateLimitServiceServer::new(self).max_decoding_message_size(max_bytes);
        let call = guard(&MessageBounds::RATE_LIMIT).layer(service.clone());
        let reports = guard(&MessageBounds::QUOTA_REPORT).layer(quota.clone());
        let calls = Router::new()
            .route_service(SHOULD_RATE_LIMIT, call)
            .route_service(STREAM_QUOTAS, reports);
        let mut routes = Routes::new(service).add_service(health).add_service(quota);
        if has_reflection {
            let names = [SERVICE_NAME, QuotaServer::NAME, HEALTH_SERVICE_NAME];
            routes = add_reflection(routes, &names);
        }
        let others = routes.prepare().into_axum_router();
        others.layer(guard(&MessageBounds::SMALL)).merge(calls)
    }

    pub(super) fn app(&self) -> &App {
        &self.app
    }

    /// Decides a request, by its deadline if it has one.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`] for a request that no Envoy sends.
    pub(super) async fn answer(
        &self,
        request: &RateLimitRequest,
        deadline: Option<Instant>,
    ) -> Result<RateLimitResponse, InvalidRequest> {
        let received = Instant::now();
        let rules = self.rules.get();
        let resolved = rules.resolve(request).inspect_err(|_| {
            self.counters.invalid.increment(1);
            if let Some(metrics) = &self.ratelimit_metrics {
                metrics.count_invalid();
            }
        })?;
        if !resolved.is_known_domain() {
            self.counters.unknown_domains.increment(1);
            self.rules.log_missing_resources();
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
        let now = self.clock.now();
        let mut response = resolved.response(&verdicts, now, self.options.response);
        if let Some(metrics) = &self.ratelimit_metrics {
            metrics.count(&request.domain, &resolved, &verdicts, received.elapsed());
        }
        if let Some(names) = &self.options.headers {
            add_limit_headers(&mut response, names);
        }
        match response.overall_code() {
            Code::OverLimit if self.options.is_shadow => {
                response.set_overall_code(Code::Ok);
                self.counters.shadow.increment(1);
            }
            Code::OverLimit => self.counters.over_limit.increment(1),
            Code::Ok | Code::Unknown => self.counters.ok.increment(1),
        }
        Ok(response)
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
        let answer = self.answer(request.get_ref(), deadline).await;
        answer
            .map(Response::new)
            .map_err(|error| Status::invalid_argument(error.to_string()))
    }
}

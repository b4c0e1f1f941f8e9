//! What `#[rate_limit(...)]` expands to.

use std::{
    future::Future,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use actix_web::{
    FromRequest, HttpMessage as _, HttpRequest, HttpResponse, Responder,
    body::BoxBody,
    http::header::HeaderName,
    web::{Data, Payload},
};
use ratelimit_core::{Key, Limiter};
use ratelimit_http::{
    handler::{DeclaredPolicy, HandlerTerms, global_limiter, global_registry, policy_for_handler},
    policy::HttpPolicy,
    registry::{Registry, UnknownPolicy},
};

use crate::{
    body::ResponseBody,
    check::{Admission, check},
    framework::Config,
    key::{HeaderKey, KeyError, KeyExtractor as _},
    rate_limit::config,
};

const ADVICE: &str = "set_global_registry(registry) or registry.check_declared() \
    at the start of main says so before a request does";

/// The limit of one handler, as its attribute says.
#[derive(Debug)]
pub struct HandlerLimit {
    source: PolicySource,
    key: HandlerKey,
    cost: Option<fn(&HttpRequest) -> u64>,
    exempt: Option<fn(&HttpRequest) -> bool>,
    terms: HandlerTerms,
    marks: Option<Marks>,
    shadow: Option<Shadow>,
    built: RwLock<Option<(HttpPolicy, Arc<Config>)>>,
    told: AtomicBool,
}

#[derive(Debug)]
enum PolicySource {
    /// The handler's path or scope, and the text of its limits.
    Text(&'static str, &'static str),
    /// The attribute, which has the name of a policy.
    Named(DeclaredPolicy),
}

/// Whose budget is spent.
#[derive(Clone, Copy, Debug)]
pub enum HandlerKey {
    /// The client's.
    Client,
    /// That of a header's value.
    Header(&'static str),
    /// What a function finds.
    Function(fn(&HttpRequest) -> Result<Key, KeyError>),
}

#[derive(Clone, Copy, Debug)]
struct Shadow;

#[derive(Clone, Copy, Debug)]
struct Marks;

impl HandlerLimit {
    /// The limits of a text, known by the handler's path or scope.
    pub const fn text(path: &'static str, limits: &'static str) -> HandlerLimit {
        HandlerLimit::of(PolicySource::Text(path, limits))
    }

    /// The policy that the attribute names.
    pub const fn named(policy: DeclaredPolicy) -> HandlerLimit {
        HandlerLimit::of(PolicySource::Named(policy))
    }

    const fn of(source: PolicySource) -> HandlerLimit {
        HandlerLimit {
            source,
            key: HandlerKey::Client,
            cost: None,
            exempt: None,
            terms: HandlerTerms::NONE,
            marks: None,
            shadow: None,
            built: RwLock::new(None),
            told: AtomicBool::new(false),
        }
    }

    /// Whose budget is spent.
    #[must_use]
    pub const fn key(mut self, key: HandlerKey) -> HandlerLimit {
        self.key = key;
        self
    }

    /// How much a request costs.
    #[must_use]
    pub const fn cost(mut self, cost: fn(&HttpRequest) -> u64) -> HandlerLimit {
        self.cost = Some(cost);
        self
    }

    /// Which requests pass uncounted.
    #[must_use]
    pub const fn exempt_when(mut self, exempt: fn(&HttpRequest) -> bool) -> HandlerLimit {
        self.exempt = Some(exempt);
        self
    }

    /// Where the cost of a request comes from.
    #[must_use]
    pub const fn cost_of(mut self, source: &'static str) -> HandlerLimit {
        self.terms.cost = Some(source);
        self
    }

    /// The statuses of responses whose requests stay charged.
    #[must_use]
    pub const fn charge_on(mut self, statuses: &'static str) -> HandlerLimit {
        self.terms.charge_on = Some(statuses);
        self
    }

    /// Where the actual cost of a request comes from.
    #[must_use]
    pub const fn settle(mut self, source: &'static str) -> HandlerLimit {
        self.terms.settle = Some(source);
        self
    }

    /// Marks responses.
    #[must_use]
    pub const fn mark_responses(mut self) -> HandlerLimit {
        self.marks = Some(Marks);
        self
    }

    /// Denies nothing.
    #[must_use]
    pub const fn shadow(mut self) -> HandlerLimit {
        self.shadow = Some(Shadow);
        self
    }

    async fn check(&self, request: &HttpRequest) -> Result<Admission, HttpResponse> {
        let limiter = given::<Limiter>(request).unwrap_or_else(global_limiter);
        let config = self.config(&limiter, request);
        let config = config.map_err(|unknown| self.tell(&unknown))?;
        check(config, &limiter, request).await
    }

    /// The config under the policy of this moment, made anew only when that has changed.
    fn config(
        &self,
        limiter: &Limiter,
        request: &HttpRequest,
    ) -> Result<Arc<Config>, UnknownPolicy> {
        // In one statement, so that the lock is free again before it is taken to write.
        let built = self
            .built
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let (PolicySource::Text(..), Some((_, config))) = (&self.source, &built) {
            return Ok(Arc::clone(config));
        }
        let policy = self.policy(request)?;
        match built {
            Some((before, config)) if before == policy => Ok(config),
            _ => {
                let config = Arc::new(self.build(limiter.clone(), policy.clone()));
                let built = self.built.write();
                let latest = Some((policy, Arc::clone(&config)));
                *built.unwrap_or_else(PoisonError::into_inner) = latest;
                Ok(config)
            }
        }
    }

    fn policy(&self, request: &HttpRequest) -> Result<HttpPolicy, UnknownPolicy> {
        match self.source {
            PolicySource::Named(attribute) => named(attribute, request),
            PolicySource::Text(path, limits) => {
                let policy = policy_for_handler(path, limits);
                Ok(policy
                    .expect("the text was parsed when it was expanded")
                    .into())
            }
        }
    }

    fn build(&self, limiter: Limiter, policy: HttpPolicy) -> Config {
        let mut config = config(limiter, self.terms.apply_to(policy));
        match self.key {
            HandlerKey::Client => {}
            HandlerKey::Header(name) => {
                let header = HeaderKey::new(HeaderName::from_static(name));
                config.key_by(move |request| header.extract(request));
            }
            HandlerKey::Function(function) => config.key_by(function),
        }
        if let Some(cost) = self.cost {
            config.cost(cost);
        }
        if let Some(exempt) = self.exempt {
            config.exempt_when(exempt);
        }
        if let Some(Marks) = self.marks {
            config.mark_responses();
        }
        if let Some(Shadow) = self.shadow {
            config.shadow();
        }
        config
    }

    fn tell(&self, unknown: &UnknownPolicy) -> HttpResponse {
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::error!("{unknown}; {ADVICE}");
            if !tracing::dispatcher::has_been_set() {
                eprintln!("rate limit: {unknown}; {ADVICE}");
            }
        }
        HttpResponse::InternalServerError().finish()
    }
}

fn named(attribute: DeclaredPolicy, request: &HttpRequest) -> Result<HttpPolicy, UnknownPolicy> {
    let registry = given::<Registry>(request).or_else(global_registry);
    let registry = registry.unwrap_or_default();
    let policy = registry.get(attribute.policy);
    policy.ok_or_else(|| UnknownPolicy::for_declared(attribute, &registry))
}

/// What the application put into the request's extensions, or into its own data.
fn given<T: Clone + 'static>(request: &HttpRequest) -> Option<T> {
    let extension = request.extensions().get::<T>().cloned();
    extension
        .or_else(|| request.app_data::<T>().cloned())
        .or_else(|| Some(request.app_data::<Data<T>>()?.get_ref().clone()))
}

/// Checks a request, extracts what its handler takes, calls it, and tells what is left.
///
/// Extractors are polled together, so what a check must come before cannot stand beside it.
pub async fn run<A, R>(
    limit: &'static HandlerLimit,
    request: HttpRequest,
    payload: Payload,
    handler: impl FnOnce(A) -> R,
) -> HttpResponse
where
    A: FromRequest,
    R: Future<Output: Responder>,
{
    let passed = match limit.check(&request).await {
        Ok(passed) => passed,
        Err(answer) => return answer,
    };
    let extracted = A::from_request(&request, &mut payload.into_inner()).await;
    let mut response = match extracted {
        Ok(arguments) => {
            let answer = handler(arguments).await.respond_to(&request);
            answer.map_into_boxed_body()
        }
        Err(error) => HttpResponse::from_error(error),
    };
    let guard = passed.finish(response.status(), response.headers_mut());
    match guard {
        Some(_) => response.map_body(|_, body| BoxBody::new(ResponseBody::new(body, guard))),
        None => response,
    }
}

/// What an attribute's `cost` may be: a number, or a function of the request.
pub trait CostOf {
    /// What the request costs.
    fn cost_of(&self, request: &HttpRequest) -> u64;
}

impl CostOf for u64 {
    fn cost_of(&self, _: &HttpRequest) -> u64 {
        *self
    }
}

impl<F: Fn(&HttpRequest) -> u64> CostOf for F {
    fn cost_of(&self, request: &HttpRequest) -> u64 {
        self(request)
    }
}

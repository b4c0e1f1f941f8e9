//! What `#[rate_limit(...)]` expands to.

use std::sync::{
    PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderName, StatusCode, request::Parts};
use ratelimit_core::{Key, Limiter};
use ratelimit_http::{
    handler::{DeclaredPolicy, HandlerTerms, global_limiter, global_registry, policy_for_handler},
    policy::HttpPolicy,
    registry::{Registry, UnknownPolicy},
};
use ratelimit_tower::{Admission, ClientKey, HeaderKey, KeyError};

use crate::layer::RateLimitLayer;

const ADVICE: &str = "set_global_registry(registry) or registry.check_declared() \
    at the start of main says so before a request does";

/// The limit of one handler, as its attribute says.
#[derive(Debug)]
pub struct HandlerLimit {
    source: PolicySource,
    key: HandlerKey,
    cost: Option<fn(&Parts) -> u64>,
    exempt: Option<fn(&Parts) -> bool>,
    terms: HandlerTerms,
    marks: Option<Marks>,
    mode: Mode,
    built: RwLock<Option<(HttpPolicy, RateLimitLayer)>>,
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
    Function(fn(&Parts) -> Result<Key, KeyError>),
}

#[derive(Clone, Copy, Debug)]
struct Marks;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Enforced,
    Shadow,
}

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
            mode: Mode::Enforced,
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
    pub const fn cost(mut self, cost: fn(&Parts) -> u64) -> HandlerLimit {
        self.cost = Some(cost);
        self
    }

    /// Which requests pass uncounted.
    #[must_use]
    pub const fn exempt_when(mut self, exempt: fn(&Parts) -> bool) -> HandlerLimit {
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
        self.mode = Mode::Shadow;
        self
    }

    pub(crate) async fn check(&self, request: &mut Parts) -> Result<Admission, Response> {
        let limiter = request.extensions.get::<Limiter>().cloned();
        let limiter = limiter.unwrap_or_else(global_limiter);
        let layer = self.layer(&limiter, request);
        let layer = layer.map_err(|unknown| self.tell(&unknown))?;
        let passed = layer.inner().check_by(&limiter, request).await;
        passed.map_err(|answer| answer.map(Body::from))
    }

    /// The layer under the policy of this moment, made anew only when that has changed.
    fn layer(&self, limiter: &Limiter, request: &Parts) -> Result<RateLimitLayer, UnknownPolicy> {
        // In one statement, so that the lock is free again before it is taken to write.
        let built = self
            .built
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let (PolicySource::Text(..), Some((_, layer))) = (&self.source, &built) {
            return Ok(layer.clone());
        }
        let policy = self.policy(request)?;
        match built {
            Some((before, layer)) if before == policy => Ok(layer),
            _ => {
                let layer = self.build(limiter.clone(), policy.clone());
                let built = self.built.write();
                *built.unwrap_or_else(PoisonError::into_inner) = Some((policy, layer.clone()));
                Ok(layer)
            }
        }
    }

    fn policy(&self, request: &Parts) -> Result<HttpPolicy, UnknownPolicy> {
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

    fn build(&self, limiter: Limiter, policy: HttpPolicy) -> RateLimitLayer {
        let layer = RateLimitLayer::new(limiter, self.terms.apply_to(policy));
        let layer = match self.key {
            HandlerKey::Client => layer.key_by(ClientKey::new()),
            HandlerKey::Header(name) => layer.key_by(HeaderKey::new(HeaderName::from_static(name))),
            HandlerKey::Function(function) => layer.key_by(function),
        };
        let layer = match self.cost {
            Some(cost) => layer.cost(cost),
            None => layer,
        };
        let layer = match self.exempt {
            Some(exempt) => layer.exempt_when(exempt),
            None => layer,
        };
        let layer = match self.marks {
            Some(Marks) => layer.mark_responses(),
            None => layer,
        };
        match self.mode {
            Mode::Enforced => layer,
            Mode::Shadow => layer.shadow(),
        }
    }

    fn tell(&self, unknown: &UnknownPolicy) -> Response {
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::error!("{unknown}; {ADVICE}");
            if !tracing::dispatcher::has_been_set() {
                eprintln!("rate limit: {unknown}; {ADVICE}");
            }
        }
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

fn named(attribute: DeclaredPolicy, request: &Parts) -> Result<HttpPolicy, UnknownPolicy> {
    let registry = request.extensions.get::<Registry>().cloned();
    let registry = registry.or_else(global_registry).unwrap_or_default();
    let policy = registry.get(attribute.policy);
    policy.ok_or_else(|| UnknownPolicy::for_declared(attribute, &registry))
}

/// The marker type of one handler.
pub trait Marker: Send + Sync + 'static {
    /// The handler's limit.
    fn limit() -> &'static HandlerLimit;
}

/// What an attribute's `cost` may be: a number, or a function of the request's head.
pub trait CostOf {
    /// What the request costs.
    fn cost_of(&self, request: &Parts) -> u64;
}

impl CostOf for u64 {
    fn cost_of(&self, _: &Parts) -> u64 {
        *self
    }
}

impl<F: Fn(&Parts) -> u64> CostOf for F {
    fn cost_of(&self, request: &Parts) -> u64 {
        self(request)
    }
}

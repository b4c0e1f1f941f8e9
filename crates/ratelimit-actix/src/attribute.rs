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
use ratelimit_core::{
    Attribute, Key, Limiter, Policy, Registry, UnknownPolicy, adapter::HandlerTerms,
    handler_policy, installed, installed_registry,
};

use crate::{
    body::LimitedBody,
    check::{Passed, check},
    framework::Settings,
    key::{HeaderKey, KeyExtractor as _, NoKey},
    rate_limit::settings,
};

const ADVICE: &str = "install_registry(registry) or registry.for_attributes() \
    at the start of main says so before a request does";

/// The limit of one handler, as its attribute says.
#[derive(Debug)]
pub struct HandlerLimit {
    source: Source,
    key: KeyBy,
    cost: Option<fn(&HttpRequest) -> u64>,
    exempt: Option<fn(&HttpRequest) -> bool>,
    terms: HandlerTerms,
    marks: Option<Marks>,
    shadow: Option<Shadow>,
    built: RwLock<Option<(Policy, Arc<Settings>)>>,
    told: AtomicBool,
}

#[derive(Debug)]
enum Source {
    /// The handler's path or scope, and the text of its limits.
    Text(&'static str, &'static str),
    /// The attribute, which has the name of a policy.
    Named(Attribute),
}

/// Whose budget is spent.
#[derive(Clone, Copy, Debug)]
pub enum KeyBy {
    /// The client's.
    Client,
    /// That of a header's value.
    Header(&'static str),
    /// What a function finds.
    Function(fn(&HttpRequest) -> Result<Key, NoKey>),
}

#[derive(Clone, Copy, Debug)]
struct Shadow;

#[derive(Clone, Copy, Debug)]
struct Marks;

impl HandlerLimit {
    /// The limits of a text, known by the handler's path or scope.
    pub const fn text(path: &'static str, limits: &'static str) -> HandlerLimit {
        HandlerLimit::of(Source::Text(path, limits))
    }

    /// The policy that the attribute names.
    pub const fn named(policy: Attribute) -> HandlerLimit {
        HandlerLimit::of(Source::Named(policy))
    }

    const fn of(source: Source) -> HandlerLimit {
        HandlerLimit {
            source,
            key: KeyBy::Client,
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
    pub const fn key(mut self, key: KeyBy) -> HandlerLimit {
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
    pub const fn marks(mut self) -> HandlerLimit {
        self.marks = Some(Marks);
        self
    }

    /// Denies nothing.
    #[must_use]
    pub const fn shadow(mut self) -> HandlerLimit {
        self.shadow = Some(Shadow);
        self
    }

    async fn check(&self, request: &HttpRequest) -> Result<Passed, HttpResponse> {
        let limiter = given::<Limiter>(request).unwrap_or_else(installed);
        let settings = self.settings(&limiter, request);
        let settings = settings.map_err(|unknown| self.tell(&unknown))?;
        check(settings, &limiter, request).await
    }

    /// The settings under the policy of this moment, made anew only when that has changed.
    fn settings(
        &self,
        limiter: &Limiter,
        request: &HttpRequest,
    ) -> Result<Arc<Settings>, UnknownPolicy> {
        // In one statement, so that the lock is free again before it is taken to write.
        let built = self
            .built
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let (Source::Text(..), Some((_, settings))) = (&self.source, &built) {
            return Ok(Arc::clone(settings));
        }
        let policy = self.policy(request)?;
        match built {
            Some((before, settings)) if before == policy => Ok(settings),
            _ => {
                let settings = Arc::new(self.build(limiter.clone(), policy.clone()));
                let built = self.built.write();
                let latest = Some((policy, Arc::clone(&settings)));
                *built.unwrap_or_else(PoisonError::into_inner) = latest;
                Ok(settings)
            }
        }
    }

    fn policy(&self, request: &HttpRequest) -> Result<Policy, UnknownPolicy> {
        match self.source {
            Source::Named(attribute) => named(attribute, request),
            Source::Text(path, limits) => {
                let policy = handler_policy(path, limits);
                Ok(policy.expect("the text was parsed when it was expanded"))
            }
        }
    }

    fn build(&self, limiter: Limiter, policy: Policy) -> Settings {
        let mut settings = settings(limiter, self.terms.of(policy));
        match self.key {
            KeyBy::Client => {}
            KeyBy::Header(name) => {
                let header = HeaderKey::new(HeaderName::from_static(name));
                settings.key_by(move |request| header.extract(request));
            }
            KeyBy::Function(function) => settings.key_by(function),
        }
        if let Some(cost) = self.cost {
            settings.cost(cost);
        }
        if let Some(exempt) = self.exempt {
            settings.exempt_when(exempt);
        }
        if let Some(Marks) = self.marks {
            settings.marks();
        }
        if let Some(Shadow) = self.shadow {
            settings.shadow();
        }
        settings
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

fn named(attribute: Attribute, request: &HttpRequest) -> Result<Policy, UnknownPolicy> {
    let registry = given::<Registry>(request).or_else(installed_registry);
    let registry = registry.unwrap_or_default();
    let policy = registry.get(attribute.policy);
    policy.ok_or_else(|| UnknownPolicy::of(attribute, &registry))
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
    let held = passed.finish(response.status(), response.headers_mut());
    match held {
        Some(_) => response.map_body(|_, body| BoxBody::new(LimitedBody::new(body, held))),
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

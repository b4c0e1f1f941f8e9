//! What is limited, by whose key, and how that is told.

use std::{
    future::{Ready, ready},
    panic::Location,
    sync::Arc,
};

use actix_web::{
    HttpRequest, HttpResponse,
    dev::{Service, ServiceRequest, ServiceResponse, Transform},
};
use ratelimit_core::{
    HeaderStyle, InvalidPolicy, Key, Limiter, Policy, Registry, UnknownPolicy,
    adapter::{Mode, Preflight},
};

use crate::{
    framework::Settings,
    key::{ClientKey, KeyExtractor, NoKey},
    rejection::Rejection,
    service::RateLimitService,
    workers,
};

/// Limits the requests to an app, a scope or a resource.
///
/// All clones share the budgets of one [`Limiter`]. A middleware that is made inside the closure of
/// `HttpServer::new` is made once for each worker; the workers of a server then share the limiter
/// that the first of them made at the same line for the same policy.
///
/// Without further settings each client address has its own budget, answers carry
/// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, and requests over the limit get 429.
#[derive(Clone, Debug)]
pub struct RateLimit {
    settings: Arc<Settings>,
}

impl RateLimit {
    /// Limits the requests of each client, counted in the memory of this process.
    ///
    /// The policy is called `client`; [`new`](Self::new) takes one with a name of its own.
    ///
    /// # Errors
    ///
    /// When `limits` is not the text of limits.
    #[track_caller]
    pub fn per_client(limits: &str) -> Result<RateLimit, InvalidPolicy> {
        let policy = Policy::parse("client", limits)?;
        Ok(RateLimit::new(Limiter::in_memory(), policy))
    }

    /// Limits each client's requests by `policy`, counted where `limiter` counts.
    #[track_caller]
    pub fn new(limiter: Limiter, policy: Policy) -> RateLimit {
        let place = format!("{} {policy}", policy.name());
        let limiter = workers::shared(limiter, Location::caller(), place);
        RateLimit {
            settings: Arc::new(Settings::new(limiter, policy, client_key())),
        }
    }

    /// Limits each client's requests by the policy of that name, as it is when a request comes.
    ///
    /// A policy that is removed from the registry stays in force as it was last.
    ///
    /// # Errors
    ///
    /// When there is no policy of that name.
    #[track_caller]
    pub fn named(
        limiter: Limiter,
        registry: &Registry,
        name: &str,
    ) -> Result<RateLimit, UnknownPolicy> {
        let limiter = workers::shared(limiter, Location::caller(), name.to_owned());
        let settings = Settings::named(limiter, registry, name, client_key())?;
        Ok(RateLimit {
            settings: Arc::new(settings),
        })
    }

    /// Whose budget is spent; the client's, as [`ClientKey`](crate::ClientKey) finds it, unless set.
    #[must_use]
    pub fn key_by(self, key: impl KeyExtractor) -> RateLimit {
        self.changed(|settings| settings.key_by(move |request| key.extract(request)))
    }

    /// How much a request costs, what the policy says unless set; a cost of 0 looks without spending.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&HttpRequest) -> u64 + Send + Sync + 'static) -> RateLimit {
        self.changed(|settings| settings.cost(cost))
    }

    /// Which headers tell what is left; [`HeaderStyle::XRateLimit`] unless set.
    #[must_use]
    pub fn headers(self, style: HeaderStyle) -> RateLimit {
        self.changed(|settings| settings.headers(style))
    }

    /// Lets scripts of other origins read the headers, by `Access-Control-Expose-Headers`.
    #[must_use]
    pub fn expose_headers(self) -> RateLimit {
        self.changed(Settings::expose_headers)
    }

    /// Makes the answer to a request over the limit.
    ///
    /// The headers are added to it, and `Retry-After`, unless it says something stricter.
    #[must_use]
    pub fn on_denied(
        self,
        answer: impl Fn(&Rejection<'_>) -> HttpResponse + Send + Sync + 'static,
    ) -> RateLimit {
        self.changed(|settings| settings.on_denied(answer))
    }

    /// Makes the answer to a request that could not be decided: without a key, or a store.
    #[must_use]
    pub fn on_failed(
        self,
        answer: impl Fn(&Rejection<'_>) -> HttpResponse + Send + Sync + 'static,
    ) -> RateLimit {
        self.changed(|settings| settings.on_failed(answer))
    }

    /// Counts the preflight requests of CORS as well, which pass uncounted unless set.
    #[must_use]
    pub fn count_preflight(self) -> RateLimit {
        self.changed(|settings| settings.preflight = Preflight::Counted)
    }

    /// Lets requests pass uncounted and untold where `is_exempt` says so.
    #[must_use]
    pub fn exempt_when(
        self,
        is_exempt: impl Fn(&HttpRequest) -> bool + Send + Sync + 'static,
    ) -> RateLimit {
        self.changed(|settings| settings.exempt_when(is_exempt))
    }

    /// Decides and counts, but lets every request pass, and tells its client nothing.
    #[must_use]
    pub fn shadow(self) -> RateLimit {
        self.changed(|settings| settings.mode = Mode::Shadow)
    }

    fn changed(mut self, change: impl FnOnce(&mut Settings)) -> RateLimit {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl<S, B> Transform<S, ServiceRequest> for RateLimit
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>> + 'static,
    B: 'static,
{
    type Response = <RateLimitService<S> as Service<ServiceRequest>>::Response;
    type Error = S::Error;
    type Transform = RateLimitService<S>;
    type InitError = ();
    type Future = Ready<Result<RateLimitService<S>, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(RateLimitService::new(
            service,
            Arc::clone(&self.settings),
        )))
    }
}

pub(crate) fn client_key() -> impl Fn(&HttpRequest) -> Result<Key, NoKey> + Send + Sync + 'static {
    let client = ClientKey::new();
    move |request| client.extract(request)
}

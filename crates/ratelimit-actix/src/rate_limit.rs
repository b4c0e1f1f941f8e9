//! What is limited, by whose key, and how that is told.

use std::{
    future::{Ready, ready},
    panic::Location,
    sync::Arc,
};

use actix_web::{
    Error, HttpRequest, HttpResponse,
    body::MessageBody,
    dev::{Service, ServiceRequest, ServiceResponse, Transform},
};
use ratelimit_core::{InvalidPolicy, Key, Limiter, Policy};
use ratelimit_http::{
    middleware::Preflight,
    policy::HttpPolicy,
    registry::{Registry, UnknownPolicy},
    response::HeaderStyle,
};

use crate::{
    framework::Config,
    key::{ClientKey, KeyError, KeyExtractor, RouteKey},
    rejection::Rejection,
    service::RateLimitService,
    workers,
};

/// Limits the requests to an app, a scope or a resource.
///
/// All clones share the budgets of one [`Limiter`]. The closure of `HttpServer::new` runs once for each
/// worker: make a limiter that counts in memory outside of it and clone it inside, or each worker has
/// budgets of its own. [`per_client`](Self::per_client), which makes its own limiter, has one for all
/// workers.
///
/// Without further config each client address has its own budget, answers carry
/// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, and requests over the limit get 429.
#[derive(Clone, Debug)]
pub struct RateLimit {
    config: Arc<Config>,
}

impl RateLimit {
    /// Limits the requests of each client, counted in the memory of this process.
    ///
    /// The policy is called `client`; [`new`](Self::new) takes one with a name of its own.
    ///
    /// Inside the closure of `HttpServer::new` all workers share one budget for each line that calls this
    /// function and each text of `limits`. Two scopes whose limits come from one helper function
    /// therefore share one as well; give them a [`Limiter`] each with [`new`](Self::new), or put
    /// `#[track_caller]` on the helper.
    ///
    /// # Errors
    ///
    /// When `limits` is not the text of limits.
    #[track_caller]
    pub fn per_client(limits: &str) -> Result<RateLimit, InvalidPolicy> {
        let policy = Policy::parse("client", limits)?;
        let shared = workers::shared(Location::caller(), &policy.to_string());
        let limiter = match &shared {
            Some(shared) => shared.limiter(),
            None => Limiter::in_memory(),
        };
        let mut config = config(limiter, policy.into());
        config.options.shared_limiter = shared;
        Ok(RateLimit::from_config(config))
    }

    /// Limits each client's requests by `policy`, counted where `limiter` counts.
    ///
    /// ```no_run
    /// use actix_web::{App, HttpServer};
    /// use ratelimit_actix::{Limiter, Policy, RateLimit};
    ///
    /// let policy = Policy::parse("api", "100/min")?;
    /// let limiter = Limiter::in_memory();
    /// let server = HttpServer::new(move || {
    ///     App::new().wrap(RateLimit::new(limiter.clone(), policy.clone()))
    /// });
    /// # Ok::<(), ratelimit_actix::InvalidPolicy>(())
    /// ```
    pub fn new(limiter: Limiter, policy: impl Into<HttpPolicy>) -> RateLimit {
        workers::warn_once_if_unshared(&limiter);
        RateLimit::from_config(config(limiter, policy.into()))
    }

    /// Limits each client's requests by the policy of that name, as it is when a request comes.
    ///
    /// A policy that is removed from the registry stays in force as it was last.
    ///
    /// # Errors
    ///
    /// When there is no policy of that name.
    pub fn named(
        limiter: Limiter,
        registry: &Registry,
        name: &str,
    ) -> Result<RateLimit, UnknownPolicy> {
        workers::warn_once_if_unshared(&limiter);
        let mut config = Config::by_name(limiter, registry, name, client_key())?;
        name_route_key(&mut config);
        Ok(RateLimit::from_config(config))
    }

    #[cfg(test)]
    pub(crate) fn limiter(&self) -> &Limiter {
        &self.config.limiter
    }

    fn from_config(config: Config) -> RateLimit {
        RateLimit {
            config: Arc::new(config),
        }
    }

    /// Whose budget is spent; the client's, as [`ClientKey`](crate::ClientKey) finds it, unless set.
    #[must_use]
    pub fn key_by(self, key: impl KeyExtractor) -> RateLimit {
        let key = Arc::new(key);
        let client = Arc::clone(&key);
        self.changed(|config| {
            config.key_by(move |request| key.extract(request));
            config.client_address_by(move |request| client.client_address(request));
        })
    }

    /// Where the key called `name` is found, for limits that count by it: `100/min by user`.
    ///
    /// A request that does not have it is counted by its main key instead. These names are known
    /// without this: `ip`, the client's address as the main key's [`ClientKey`] finds it, `route`,
    /// `global` and `header:NAME`. With a name that is not known the server does not start, and the log
    /// says why.
    ///
    /// ```
    /// use ratelimit_actix::{ApiKey, Limiter, Policy, RateLimit};
    ///
    /// let policy = Policy::parse("api", "100/min; 1000/min by app; 5000/min by route")?;
    /// let limit = RateLimit::new(Limiter::in_memory(), policy).named_key("app", ApiKey);
    /// # Ok::<(), ratelimit_actix::InvalidPolicy>(())
    /// ```
    #[must_use]
    pub fn named_key(self, name: &str, key: impl KeyExtractor) -> RateLimit {
        self.changed(|config| config.named_key(name, move |request| key.extract(request)))
    }

    /// In which tier of the policy a request is; where it names none, the policy says so by the key.
    #[must_use]
    pub fn tier(
        self,
        tier: impl Fn(&HttpRequest) -> Option<String> + Send + Sync + 'static,
    ) -> RateLimit {
        self.changed(|config| config.tier(tier))
    }

    /// How much a request costs, what the policy says unless set; a cost of 0 looks without spending.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&HttpRequest) -> u64 + Send + Sync + 'static) -> RateLimit {
        self.changed(|config| config.cost(cost))
    }

    /// Which headers tell what is left; [`HeaderStyle::XRateLimit`] unless set.
    #[must_use]
    pub fn headers(self, style: HeaderStyle) -> RateLimit {
        self.changed(|config| config.headers(style))
    }

    /// Lets scripts of other origins read the headers, by `Access-Control-Expose-Headers`.
    #[must_use]
    pub fn expose_headers(self) -> RateLimit {
        self.changed(Config::expose_headers)
    }

    /// Marks responses: `X-RateLimit-Over: true` where a soft limit let a request pass beyond it, and
    /// `X-RateLimit-Shadow: denied` where a policy that only watches would have denied it.
    #[must_use]
    pub fn mark_responses(self) -> RateLimit {
        self.changed(Config::mark_responses)
    }

    /// Makes the answer to a request over the limit, or blocked by a rule.
    ///
    /// The headers are added to it, and `Retry-After`, unless it says something stricter.
    #[must_use]
    pub fn on_denied(
        self,
        answer: impl Fn(&Rejection<'_>) -> HttpResponse + Send + Sync + 'static,
    ) -> RateLimit {
        self.changed(|config| config.on_denied(answer))
    }

    /// Makes the answer to a request that could not be decided: without a key, or a store.
    #[must_use]
    pub fn on_error(
        self,
        answer: impl Fn(&Rejection<'_>) -> HttpResponse + Send + Sync + 'static,
    ) -> RateLimit {
        self.changed(|config| config.on_error(answer))
    }

    /// Counts the preflight requests of CORS as well, which pass uncounted unless set.
    #[must_use]
    pub fn count_preflight(self) -> RateLimit {
        self.changed(|config| config.preflight = Preflight::Counted)
    }

    /// Puts the decision into no extensions: [`CurrentDecision`](crate::CurrentDecision) holds `None`.
    #[must_use]
    pub fn without_decision(self) -> RateLimit {
        self.changed(|config| config.options.hides_decision = true)
    }

    /// Lets requests pass uncounted and untold where `is_exempt` says so.
    #[must_use]
    pub fn exempt_when(
        self,
        is_exempt: impl Fn(&HttpRequest) -> bool + Send + Sync + 'static,
    ) -> RateLimit {
        self.changed(|config| config.exempt_when(is_exempt))
    }

    /// Decides and counts, but lets every request pass, and tells its client nothing beside
    /// [`mark_responses`](Self::mark_responses): [`Policy::shadow`](ratelimit_core::Policy::shadow), whatever policy is applied.
    #[must_use]
    pub fn shadow(self) -> RateLimit {
        self.changed(Config::shadow)
    }

    fn changed(mut self, change: impl FnOnce(&mut Config)) -> RateLimit {
        change(Arc::make_mut(&mut self.config));
        self
    }
}

impl<S, B> Transform<S, ServiceRequest> for RateLimit
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = <RateLimitService<S> as Service<ServiceRequest>>::Response;
    type Error = Error;
    type Transform = RateLimitService<S>;
    type InitError = ();
    type Future = Ready<Result<RateLimitService<S>, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        if let Err(unknown) = self.config.check_key_names() {
            tracing::error!("{unknown}");
            if !tracing::dispatcher::has_been_set() {
                eprintln!("rate limit: {unknown}");
            }
            return ready(Err(()));
        }
        ready(Ok(RateLimitService::new(service, Arc::clone(&self.config))))
    }
}

pub(crate) fn config(limiter: Limiter, policy: HttpPolicy) -> Config {
    let mut config = Config::new(limiter, policy, client_key());
    name_route_key(&mut config);
    config
}

fn name_route_key(config: &mut Config) {
    config.named_key("route", |request| RouteKey.extract(request));
}

fn client_key() -> impl Fn(&HttpRequest) -> Result<Key, KeyError> + Send + Sync + 'static {
    let client = ClientKey::new();
    move |request| client.extract(request)
}

//! The middleware that limits requests.

use std::{
    future::{Ready, ready},
    panic::Location,
    sync::{Arc, OnceLock},
};

use actix_web::{
    Error, HttpRequest, HttpResponse, Responder,
    body::MessageBody,
    dev::{Service, ServiceRequest, ServiceResponse, Transform},
};
use ratelimit_core::{InvalidPolicy, Key, Limiter, Policy};
use ratelimit_http::{
    builder_methods,
    middleware::DecisionSharing,
    policy::HttpPolicy,
    registry::{Registry, UnknownPolicy},
};

use crate::{
    check::{Admission, check},
    framework::Config,
    key::{ClientKey, KeyError, KeyExtractor, RouteKey},
    rejection::{Rejection, respond},
    service::RateLimitService,
    worker_sharing::{SharedLimiter, share_between_workers, warn_once_if_unshared},
};

/// Limits the requests to an app, a scope or a resource.
///
/// - Each client address has its own budget; [`key_by`](Self::key_by) counts by something else.
/// - A request over its limit gets 429 with a problem body and `Retry-After`. The service is not called.
/// - Other responses carry `X-RateLimit-Limit`, `-Remaining` and `-Reset`; [`headers`](Self::headers)
///   chooses other fields.
/// - All clones share the budgets of one [`Limiter`].
/// - actix-web calls the closure of `HttpServer::new` once per worker. Make a limiter in memory outside of
///   the closure and clone it inside, or each worker counts on its own.
///   [`per_client`](Self::per_client), which makes its own limiter, shares it between all workers.
/// - Settings that are not made are those of [`set_global_defaults`](crate::set_global_defaults) when the
///   middleware is put over a service.
#[doc(alias = "throttle")]
#[derive(Clone, Debug)]
#[doc(alias("Governor", "actix-governor", "429"))]
pub struct RateLimit {
    config: Arc<Config>,
    /// The settings with the process's defaults, from the first use on.
    completed: OnceLock<Arc<Config>>,
    shared_limiter: Option<Arc<SharedLimiter>>,
}

impl RateLimit {
    /// Limits the requests of each client, counted in the memory of this process.
    ///
    /// The policy is called `client`; [`new`](Self::new) takes one with a name of its own.
    ///
    /// Inside the closure of `HttpServer::new` all workers share one limiter for each line that calls this
    /// function and each text of `limits`. Two scopes whose limits come from one helper function therefore
    /// share a limiter as well. Give each scope its own with [`new`](Self::new), or put `#[track_caller]` on
    /// the helper.
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`] if `limits` is not a list of limits such as `10/min; 100/h`.
    #[track_caller]
    pub fn per_client(limits: &str) -> Result<RateLimit, InvalidPolicy> {
        let policy = Policy::parse("client", limits)?;
        let shared = share_between_workers(Location::caller(), &policy.to_string());
        let limiter = match &shared {
            Some(shared) => shared.limiter(),
            None => Limiter::in_memory(),
        };
        Ok(RateLimit {
            shared_limiter: shared,
            ..RateLimit::from_config(new_config(limiter, policy.into()))
        })
    }

    /// Limits the requests of each client by `policy`, counted by `limiter`.
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
        warn_once_if_unshared(&limiter);
        RateLimit::from_config(new_config(limiter, policy.into()))
    }

    /// Limits the requests of each client by the policy called `name`, in the registry's latest version.
    ///
    /// The policy cannot be removed from the registry while the middleware exists.
    ///
    /// # Errors
    ///
    /// [`UnknownPolicy`] if the registry has no policy of that name.
    pub fn named(
        limiter: Limiter,
        registry: &Registry,
        name: &str,
    ) -> Result<RateLimit, UnknownPolicy> {
        warn_once_if_unshared(&limiter);
        let config = Config::by_name(limiter, registry, name, client_key())?;
        Ok(RateLimit::from_config(with_defaults(config)))
    }

    /// Decides a request without a service, as in a handler that chooses among several limits.
    ///
    /// [`Admission::finish`] does with the response what the middleware would have done.
    ///
    /// ```
    /// use actix_web::{HttpRequest, HttpResponse, Responder, web::Data};
    /// use ratelimit_actix::RateLimit;
    ///
    /// async fn search(request: HttpRequest, limit: Data<RateLimit>) -> impl Responder {
    ///     match limit.check(&request).await {
    ///         Ok(admission) => admission.finish(HttpResponse::Ok().body("found")).map_into_boxed_body(),
    ///         Err(response) => response,
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// The response to a request that does not pass.
    pub async fn check(&self, request: &HttpRequest) -> Result<Admission, HttpResponse> {
        let config = self.completed();
        check(config.current(), &config.limiter, request).await
    }

    #[cfg(test)]
    pub(crate) fn limiter(&self) -> &Limiter {
        &self.config.limiter
    }

    fn from_config(config: Config) -> RateLimit {
        RateLimit {
            config: Arc::new(config),
            completed: OnceLock::new(),
            shared_limiter: None,
        }
    }

    fn map_config(mut self, change: impl FnOnce(&mut Config)) -> RateLimit {
        change(Arc::make_mut(&mut self.config));
        self.completed = OnceLock::new();
        self
    }

    /// The settings with the process's defaults.
    fn completed(&self) -> &Arc<Config> {
        self.completed.get_or_init(|| self.config.with_defaults())
    }
}

builder_methods! {
    /// ```
    /// use ratelimit_actix::{ApiKey, Limiter, Policy, RateLimit};
    ///
    /// let policy = Policy::parse("api", "100/min; 1000/min by app; 5000/min by route")?;
    /// let limit = RateLimit::new(Limiter::in_memory(), policy).named_key("app", ApiKey);
    /// # Ok::<(), ratelimit_actix::InvalidPolicy>(())
    /// ```
    impl RateLimit for KeyExtractor(HttpRequest), Rejection -> Responder as respond
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
        self.config.log_policy_warnings();
        let (config, shared) = (Arc::clone(self.completed()), self.shared_limiter.clone());
        ready(Ok(RateLimitService::new(service, config, shared)))
    }
}

/// The settings of a layer or a handler's limit.
pub(crate) fn new_config(limiter: Limiter, policy: HttpPolicy) -> Config {
    with_defaults(Config::new(limiter, policy, client_key()))
}

fn with_defaults(mut config: Config) -> Config {
    config.named_key("route", |request| RouteKey.extract(request));
    config.sharing = DecisionSharing::Request;
    config
}

fn client_key() -> impl Fn(&HttpRequest) -> Result<Key, KeyError> + Send + Sync + 'static {
    let client = ClientKey::new();
    move |request| client.extract(request)
}

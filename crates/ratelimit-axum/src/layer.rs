//! The layer that limits a router, a route or a method.

use axum::{body::Body, response::IntoResponse};
use http::{Response, request::Parts};
use ratelimit_core::{InvalidPolicy, Limiter, Policy};
use ratelimit_http::{
    builder_methods,
    middleware::{Config, DecisionSharing},
    policy::HttpPolicy,
    registry::{Registry, UnknownPolicy},
};
use ratelimit_tower::{Admission, HttpFramework, KeyExtractor};
use tower_layer::Layer;

use crate::{
    extract::RouteKey,
    rejection::{Rejection, respond},
    service::RateLimit,
};

const MISSING_CLIENT_HELP: &str = "serve the router with \
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()), \
    or put MockConnectInfo over it in a test";

/// Limits the requests to a router, a route or a method.
///
/// - Each client address has its own budget; [`key_by`](Self::key_by) counts by something else. The peer's
///   address comes from [`ConnectInfo`](axum::extract::ConnectInfo).
/// - A request over its limit gets 429 with a problem body and `Retry-After`. The handler is not called.
/// - Other responses carry `X-RateLimit-Limit`, `-Remaining` and `-Reset`; [`headers`](Self::headers)
///   chooses other fields.
/// - Handlers read the [`Decision`](ratelimit_core::Decision) with [`CurrentDecision`](crate::CurrentDecision).
/// - All routes under one layer, and all its clones, share its budgets.
/// - Settings that are not made are those of [`set_global_defaults`](crate::set_global_defaults) when the
///   layer is put over its first service.
#[doc(alias = "throttle")]
#[derive(Clone, Debug)]
#[doc(alias("GovernorLayer", "tower_governor", "429"))]
pub struct RateLimitLayer(ratelimit_tower::RateLimitLayer);

impl RateLimitLayer {
    /// Limits the requests of each client, counted in the memory of this process.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use ratelimit_axum::RateLimitLayer;
    ///
    /// let app: Router = Router::new()
    ///     .route("/", get(async || "hello"))
    ///     .layer(RateLimitLayer::per_client("10/min")?);
    /// # Ok::<(), ratelimit_axum::InvalidPolicy>(())
    /// ```
    ///
    /// The policy is called `client`; [`new`](Self::new) takes one with a name of its own.
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`] if `limits` is not a list of limits such as `10/min; 100/h`.
    pub fn per_client(limits: &str) -> Result<RateLimitLayer, InvalidPolicy> {
        let policy = Policy::parse("client", limits)?;
        Ok(RateLimitLayer::new(Limiter::in_memory(), policy))
    }

    /// Limits the requests of each client by `policy`, counted by `limiter`.
    pub fn new(limiter: Limiter, policy: impl Into<HttpPolicy>) -> RateLimitLayer {
        ratelimit_tower::RateLimitLayer::new(limiter, policy).into()
    }

    /// Limits the requests of each client by the policy called `name`, in the registry's latest version.
    ///
    /// The policy cannot be removed from the registry while the layer exists.
    ///
    /// # Errors
    ///
    /// [`UnknownPolicy`] if the registry has no policy of that name.
    pub fn named(
        limiter: Limiter,
        registry: &Registry,
        name: &str,
    ) -> Result<RateLimitLayer, UnknownPolicy> {
        ratelimit_tower::RateLimitLayer::named(limiter, registry, name).map(Into::into)
    }

    /// Decides a request without a service, as in a middleware that chooses among several limits.
    ///
    /// [`Admission::finish`] does with the response what the layer would have done.
    ///
    /// # Errors
    ///
    /// The response to a request that does not pass.
    pub async fn check(&self, request: &mut Parts) -> Result<Admission, Response<Body>> {
        let admission = self.0.check(request).await;
        admission.map_err(|response| response.map(Body::from))
    }

    fn map_config(self, change: impl FnOnce(&mut Config<HttpFramework>)) -> RateLimitLayer {
        RateLimitLayer(self.0.map_config(change))
    }

    /// The settings of a handler's limit.
    #[cfg(feature = "macros")]
    pub(crate) fn handler_config(limiter: Limiter, policy: HttpPolicy) -> Config<HttpFramework> {
        Config::clone(RateLimitLayer::new(limiter, policy).0.config())
    }
}

builder_methods! {
    /// ```
    /// use ratelimit_axum::{ApiKey, Limiter, Policy, RateLimitLayer};
    ///
    /// let policy = Policy::parse("api", "100/min; 1000/min by app; 5000/min by route")?;
    /// let layer = RateLimitLayer::new(Limiter::in_memory(), policy).named_key("app", ApiKey);
    /// # Ok::<(), ratelimit_axum::InvalidPolicy>(())
    /// ```
    impl RateLimitLayer for KeyExtractor(Parts), Rejection -> IntoResponse as respond
}

impl From<ratelimit_tower::RateLimitLayer> for RateLimitLayer {
    fn from(layer: ratelimit_tower::RateLimitLayer) -> RateLimitLayer {
        let layer = layer.share_decision(DecisionSharing::Request);
        let layer = layer.map_config(|config| config.missing_client_help = MISSING_CLIENT_HELP);
        RateLimitLayer(layer.named_key("route", RouteKey))
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(self.0.layer(inner))
    }
}

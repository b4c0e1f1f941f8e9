//! The layer of a router.

use axum::body::Body;
use bytes::Bytes;
use http::{Response, request::Parts};
use ratelimit_core::{InvalidPolicy, Limiter, Policy};
use ratelimit_http::{
    policy::HttpPolicy,
    registry::{Registry, UnknownPolicy},
    response::HeaderStyle,
};
use ratelimit_tower::{Admission, KeyExtractor, Rejection};
use tower_layer::Layer;

use crate::{route::RouteKey, service::RateLimit};

const MISSING_CLIENT_HELP: &str = "serve the router with \
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()), \
    or put MockConnectInfo over it in a test";

/// Limits the requests to a router, a route or a method.
///
/// It is the layer of [`ratelimit_tower`] which knows axum: the peer's address comes from
/// [`ConnectInfo`](axum::extract::ConnectInfo), and the [`Decision`](ratelimit_core::Decision) is there for the handler as
/// [`CurrentDecision`](crate::CurrentDecision). All routes under one layer, and all its clones, share its budgets.
#[derive(Clone, Debug)]
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
    /// When `limits` is not the text of limits.
    pub fn per_client(limits: &str) -> Result<RateLimitLayer, InvalidPolicy> {
        let policy = Policy::parse("client", limits)?;
        Ok(RateLimitLayer::new(Limiter::in_memory(), policy))
    }

    /// Limits each client's requests by `policy`, counted where `limiter` counts.
    pub fn new(limiter: Limiter, policy: impl Into<HttpPolicy>) -> RateLimitLayer {
        ratelimit_tower::RateLimitLayer::new(limiter, policy).into()
    }

    /// Limits each client's requests by the policy of that name, as it is when a request comes.
    ///
    /// # Errors
    ///
    /// When there is no policy of that name.
    pub fn named(
        limiter: Limiter,
        registry: &Registry,
        name: &str,
    ) -> Result<RateLimitLayer, UnknownPolicy> {
        ratelimit_tower::RateLimitLayer::named(limiter, registry, name).map(Into::into)
    }

    /// Whose budget is spent; the client's, as [`ClientKey`](crate::ClientKey) finds it, unless set.
    #[must_use]
    pub fn key_by(self, key: impl KeyExtractor) -> RateLimitLayer {
        RateLimitLayer(self.0.key_by(key))
    }

    /// Where the key called `name` is found, for limits that count by it: `100/min by user`.
    ///
    /// A request that does not have it is counted by its main key instead. These names are known
    /// without this: `ip`, the client's address as the main key's [`ClientKey`](crate::ClientKey) finds
    /// it, `route`, `global` and `header:NAME`. A name that is not known is a panic when the layer is
    /// added to a router.
    ///
    /// ```
    /// use ratelimit_axum::{ApiKey, Limiter, Policy, RateLimitLayer};
    ///
    /// let policy = Policy::parse("api", "100/min; 1000/min by app; 5000/min by route")?;
    /// let layer = RateLimitLayer::new(Limiter::in_memory(), policy).named_key("app", ApiKey);
    /// # Ok::<(), ratelimit_axum::InvalidPolicy>(())
    /// ```
    #[must_use]
    pub fn named_key(self, name: &str, key: impl KeyExtractor) -> RateLimitLayer {
        RateLimitLayer(self.0.named_key(name, key))
    }

    /// In which tier of the policy a request is; where it names none, the policy says so by the key.
    #[must_use]
    pub fn tier(
        self,
        tier: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> RateLimitLayer {
        RateLimitLayer(self.0.tier(tier))
    }

    /// How much a request costs, what the policy says unless set; a cost of 0 looks without spending.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> RateLimitLayer {
        RateLimitLayer(self.0.cost(cost))
    }

    /// Which headers tell what is left; [`HeaderStyle::XRateLimit`] unless set.
    #[must_use]
    pub fn headers(self, style: HeaderStyle) -> RateLimitLayer {
        RateLimitLayer(self.0.headers(style))
    }

    /// Lets scripts of other origins read the headers, by `Access-Control-Expose-Headers`.
    #[must_use]
    pub fn expose_headers(self) -> RateLimitLayer {
        RateLimitLayer(self.0.expose_headers())
    }

    /// Marks responses: `X-RateLimit-Over: true` where a soft limit let a request pass beyond it, and
    /// `X-RateLimit-Shadow: denied` where a policy that only watches would have denied it.
    #[must_use]
    pub fn mark_responses(self) -> RateLimitLayer {
        RateLimitLayer(self.0.mark_responses())
    }

    /// Makes the answer to a request over the limit, or blocked by a rule.
    ///
    /// The layer adds its headers to it, and `Retry-After`, unless it says something stricter.
    #[must_use]
    pub fn on_denied(
        self,
        answer: impl Fn(&Rejection<'_>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> RateLimitLayer {
        RateLimitLayer(self.0.on_denied(answer))
    }

    /// Makes the answer to a request that could not be decided: without a key, or a store.
    #[must_use]
    pub fn on_error(
        self,
        answer: impl Fn(&Rejection<'_>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> RateLimitLayer {
        RateLimitLayer(self.0.on_error(answer))
    }

    /// Counts the preflight requests of CORS as well, which pass uncounted unless set.
    #[must_use]
    pub fn count_preflight(self) -> RateLimitLayer {
        RateLimitLayer(self.0.count_preflight())
    }

    /// Puts the [`Decision`](ratelimit_core::Decision) into the extensions of the response as well, for outer
    /// layers; those of the request have it unless [`without_decision`](Self::without_decision) is called.
    #[must_use]
    pub fn share_decision(self) -> RateLimitLayer {
        RateLimitLayer(self.0.share_decision())
    }

    /// Puts the decision into no extensions: [`CurrentDecision`](crate::CurrentDecision) holds `None`.
    #[must_use]
    pub fn without_decision(self) -> RateLimitLayer {
        RateLimitLayer(self.0.without_decision())
    }

    /// Lets requests pass uncounted and untold where `is_exempt` says so.
    #[must_use]
    pub fn exempt_when(
        self,
        is_exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static,
    ) -> RateLimitLayer {
        RateLimitLayer(self.0.exempt_when(is_exempt))
    }

    /// Decides and counts, but lets every request pass, and tells its client nothing beside
    /// [`mark_responses`](Self::mark_responses): [`Policy::shadow`], whatever policy is applied.
    #[must_use]
    pub fn shadow(self) -> RateLimitLayer {
        RateLimitLayer(self.0.shadow())
    }

    /// Decides a request by hand, as in a middleware that chooses among several limits.
    ///
    /// [`Admission::finish`] then does with the response what the layer would have done.
    ///
    /// # Errors
    ///
    /// The answer to a request that does not pass.
    pub async fn check(&self, request: &mut Parts) -> Result<Admission, Response<Body>> {
        let passed = self.0.check(request).await;
        passed.map_err(|answer| answer.map(Body::from))
    }

    #[cfg(feature = "macros")]
    pub(crate) const fn inner(&self) -> &ratelimit_tower::RateLimitLayer {
        &self.0
    }
}

impl From<ratelimit_tower::RateLimitLayer> for RateLimitLayer {
    fn from(layer: ratelimit_tower::RateLimitLayer) -> RateLimitLayer {
        let layer = layer
            .missing_client_help(MISSING_CLIENT_HELP)
            .share_decision_with_handler();
        RateLimitLayer(layer.named_key("route", RouteKey))
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(self.0.layer(inner))
    }
}

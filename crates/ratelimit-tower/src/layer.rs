//! What is limited, by whose key, and how that is told.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, request::Parts};
use ratelimit_core::{Key, Limiter};
use ratelimit_http::middleware::Preflight;
use ratelimit_http::{
    policy::HttpPolicy,
    registry::{Registry, UnknownPolicy},
    response::HeaderStyle,
};
use tower_layer::Layer;

use crate::{
    framework::{Config, DecisionSharing},
    key::{ClientKey, KeyError, KeyExtractor, RouteKey},
    rejection::Rejection,
    service::RateLimit,
};

/// Limits the requests to a service.
///
/// All services that one layer makes, and all its clones, share the budgets of its [`Limiter`].
/// Without further config each client address has its own budget, answers carry
/// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, and requests over the limit get 429.
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    config: Arc<Config>,
}

impl RateLimitLayer {
    /// Limits each client's requests by `policy`.
    pub fn new(limiter: Limiter, policy: impl Into<HttpPolicy>) -> RateLimitLayer {
        RateLimitLayer::from_config(Config::new(limiter, policy.into(), client_key()))
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
    ) -> Result<RateLimitLayer, UnknownPolicy> {
        let config = Config::by_name(limiter, registry, name, client_key())?;
        Ok(RateLimitLayer::from_config(config))
    }

    fn from_config(mut config: Config) -> RateLimitLayer {
        config.named_key("route", |request| RouteKey.extract(request));
        RateLimitLayer {
            config: Arc::new(config),
        }
    }

    /// Whose budget is spent; the client's, as [`ClientKey`](crate::ClientKey) finds it, unless set.
    #[must_use]
    pub fn key_by(self, key: impl KeyExtractor) -> RateLimitLayer {
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
    /// `global` and `header:NAME`.
    ///
    /// ```
    /// use http::HeaderName;
    /// use ratelimit_core::{Limiter, Policy};
    /// use ratelimit_tower::{HeaderKey, RateLimitLayer};
    ///
    /// let policy = Policy::parse("api", "100/min by user; 1000/min by ip; 5000/min by route")?;
    /// let user = HeaderKey::new(HeaderName::from_static("x-user"));
    /// let layer = RateLimitLayer::new(Limiter::in_memory(), policy).named_key("user", user);
    /// # Ok::<(), ratelimit_core::InvalidPolicy>(())
    /// ```
    ///
    /// A name that is not known is a panic when the layer is put over a service.
    #[must_use]
    pub fn named_key(self, name: &str, key: impl KeyExtractor) -> RateLimitLayer {
        self.changed(|config| config.named_key(name, move |request| key.extract(request)))
    }

    /// In which tier of the policy a request is; where it names none, the policy says so by the key.
    ///
    /// ```
    /// use ratelimit_core::{Limiter, Policy};
    /// use ratelimit_tower::RateLimitLayer;
    ///
    /// let policy = Policy::parse("api", "10/min")?.with_tier("pro", "1000/min")?;
    /// let layer = RateLimitLayer::new(Limiter::in_memory(), policy).tier(|request| {
    ///     request.extensions.get::<String>().cloned()
    /// });
    /// # Ok::<(), ratelimit_core::InvalidPolicy>(())
    /// ```
    #[must_use]
    pub fn tier(
        self,
        tier: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.changed(|config| config.tier(tier))
    }

    /// How much a request costs, what the policy says unless set; a cost of 0 looks without spending.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> RateLimitLayer {
        self.changed(|config| config.cost(cost))
    }

    /// Which headers tell what is left; [`HeaderStyle::XRateLimit`] unless set.
    #[must_use]
    pub fn headers(self, style: HeaderStyle) -> RateLimitLayer {
        self.changed(|config| config.headers(style))
    }

    /// Lets scripts of other origins read the headers, by `Access-Control-Expose-Headers`.
    #[must_use]
    pub fn expose_headers(self) -> RateLimitLayer {
        self.changed(Config::expose_headers)
    }

    /// Marks responses: `X-RateLimit-Over: true` where a soft limit let a request pass beyond it, and
    /// `X-RateLimit-Shadow: denied` where a policy that only watches would have denied it.
    #[must_use]
    pub fn mark_responses(self) -> RateLimitLayer {
        self.changed(Config::mark_responses)
    }

    /// Makes the answer to a request over the limit, or blocked by a rule.
    ///
    /// The layer adds its headers to it, and `Retry-After`, unless it says something stricter.
    #[must_use]
    pub fn on_denied(
        self,
        answer: impl Fn(&Rejection<'_>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.changed(|config| config.on_denied(answer))
    }

    /// Makes the answer to a request that could not be decided: without a key, or a store.
    #[must_use]
    pub fn on_error(
        self,
        answer: impl Fn(&Rejection<'_>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.changed(|config| config.on_error(answer))
    }

    /// Counts the preflight requests of CORS as well, which pass uncounted unless set.
    #[must_use]
    pub fn count_preflight(self) -> RateLimitLayer {
        self.changed(|config| config.preflight = Preflight::Counted)
    }

    /// Puts the [`Decision`](ratelimit_core::Decision) into the extensions of the request, for the
    /// handler, and of the response, for outer layers.
    ///
    /// Each of the two takes allocations, so they are not made unless asked for.
    #[must_use]
    pub fn share_decision(self) -> RateLimitLayer {
        self.changed(|config| config.options.sharing = DecisionSharing::RequestAndResponse)
    }

    /// Puts the [`Decision`](ratelimit_core::Decision) into the extensions of the request only.
    #[must_use]
    pub fn share_decision_with_handler(self) -> RateLimitLayer {
        self.changed(|config| config.options.sharing = DecisionSharing::Request)
    }

    /// Puts the decision nowhere, which is the default here but not in the adapters for frameworks.
    #[must_use]
    pub fn without_decision(self) -> RateLimitLayer {
        self.changed(|config| config.options.sharing = DecisionSharing::Off)
    }

    /// Lets requests pass uncounted and untold where `is_exempt` says so.
    #[must_use]
    pub fn exempt_when(
        self,
        is_exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.changed(|config| config.exempt_when(is_exempt))
    }

    /// Decides and counts, but lets every request pass, and tells its client nothing beside
    /// [`mark_responses`](Self::mark_responses): [`Policy::shadow`](ratelimit_core::Policy::shadow), whatever policy is applied.
    ///
    /// For trying a limit: `rate_limiter_requests_total{allowed="false",shadow="true"}` shows what it
    /// would deny.
    #[must_use]
    pub fn shadow(self) -> RateLimitLayer {
        self.changed(Config::shadow)
    }

    /// For adapters of frameworks: the line to write where no request has a client address.
    #[doc(hidden)]
    #[must_use]
    pub fn missing_client_help(self, help: &'static str) -> RateLimitLayer {
        self.changed(|config| config.missing_client_help = help)
    }

    pub(crate) const fn config(&self) -> &Arc<Config> {
        &self.config
    }

    fn changed(mut self, change: impl FnOnce(&mut Config)) -> RateLimitLayer {
        change(Arc::make_mut(&mut self.config));
        self
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    /// # Panics
    ///
    /// When the policy counts by a name that the layer gives no key.
    fn layer(&self, inner: S) -> RateLimit<S> {
        if let Err(unknown) = self.config.check_key_names() {
            panic!("{unknown}");
        }
        RateLimit::new(inner, Arc::clone(&self.config))
    }
}

fn client_key() -> impl Fn(&Parts) -> Result<Key, KeyError> + Send + Sync + 'static {
    let client = ClientKey::new();
    move |request| client.extract(request)
}

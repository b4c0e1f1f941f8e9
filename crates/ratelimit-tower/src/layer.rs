//! What is limited, by whose key, and how that is told.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, request::Parts};
use ratelimit_core::{
    HeaderStyle, Key, Limiter, Policy, Registry, UnknownPolicy, adapter::Preflight,
};
use tower_layer::Layer;

use crate::{
    framework::{Settings, Sharing},
    key::{ClientKey, KeyExtractor, NoKey, RouteKey},
    rejection::Rejection,
    service::RateLimit,
};

/// Limits the requests to a service.
///
/// All services that one layer makes, and all its clones, share the budgets of its [`Limiter`].
/// Without further settings each client address has its own budget, answers carry
/// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, and requests over the limit get 429.
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    settings: Arc<Settings>,
}

impl RateLimitLayer {
    /// Limits each client's requests by `policy`.
    pub fn new(limiter: Limiter, policy: Policy) -> RateLimitLayer {
        RateLimitLayer::of(Settings::new(limiter, policy, client_key()))
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
        let settings = Settings::named(limiter, registry, name, client_key())?;
        Ok(RateLimitLayer::of(settings))
    }

    fn of(mut settings: Settings) -> RateLimitLayer {
        settings.key_named("route", |request| RouteKey.extract(request));
        RateLimitLayer {
            settings: Arc::new(settings),
        }
    }

    /// Whose budget is spent; the client's, as [`ClientKey`](crate::ClientKey) finds it, unless set.
    #[must_use]
    pub fn key_by(self, key: impl KeyExtractor) -> RateLimitLayer {
        let key = Arc::new(key);
        let client = Arc::clone(&key);
        self.changed(|settings| {
            settings.key_by(move |request| key.extract(request));
            settings.whereabouts_by(move |request| client.whereabouts(request));
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
    /// let layer = RateLimitLayer::new(Limiter::in_memory(), policy).key_named("user", user);
    /// # Ok::<(), ratelimit_core::InvalidPolicy>(())
    /// ```
    ///
    /// A name that is not known is a panic when the layer is put over a service.
    #[must_use]
    pub fn key_named(self, name: &str, key: impl KeyExtractor) -> RateLimitLayer {
        self.changed(|settings| settings.key_named(name, move |request| key.extract(request)))
    }

    /// In which tier of the policy a request is; where it names none, the policy says so by the key.
    ///
    /// ```
    /// use ratelimit_core::{Limiter, Policy};
    /// use ratelimit_tower::RateLimitLayer;
    ///
    /// let policy = Policy::parse("api", "10/min")?.with_tier("pro", "1000/min")?;
    /// let layer = RateLimitLayer::new(Limiter::in_memory(), policy).tier_by_request(|request| {
    ///     request.extensions.get::<String>().cloned()
    /// });
    /// # Ok::<(), ratelimit_core::InvalidPolicy>(())
    /// ```
    #[must_use]
    pub fn tier_by_request(
        self,
        tier: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.changed(|settings| settings.tier_by_request(tier))
    }

    /// How much a request costs, what the policy says unless set; a cost of 0 looks without spending.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> RateLimitLayer {
        self.changed(|settings| settings.cost(cost))
    }

    /// Which headers tell what is left; [`HeaderStyle::XRateLimit`] unless set.
    #[must_use]
    pub fn headers(self, style: HeaderStyle) -> RateLimitLayer {
        self.changed(|settings| settings.headers(style))
    }

    /// Lets scripts of other origins read the headers, by `Access-Control-Expose-Headers`.
    #[must_use]
    pub fn expose_headers(self) -> RateLimitLayer {
        self.changed(Settings::expose_headers)
    }

    /// Marks responses: `X-RateLimit-Over: true` where a soft limit let a request pass beyond it, and
    /// `X-RateLimit-Shadow: denied` where a policy that only watches would have denied it.
    #[must_use]
    pub fn marks(self) -> RateLimitLayer {
        self.changed(Settings::marks)
    }

    /// Makes the answer to a request over the limit, or blocked by a rule.
    ///
    /// The layer adds its headers to it, and `Retry-After`, unless it says something stricter.
    #[must_use]
    pub fn on_denied(
        self,
        answer: impl Fn(&Rejection<'_>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.changed(|settings| settings.on_denied(answer))
    }

    /// Makes the answer to a request that could not be decided: without a key, or a store.
    #[must_use]
    pub fn on_failed(
        self,
        answer: impl Fn(&Rejection<'_>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.changed(|settings| settings.on_failed(answer))
    }

    /// Counts the preflight requests of CORS as well, which pass uncounted unless set.
    #[must_use]
    pub fn count_preflight(self) -> RateLimitLayer {
        self.changed(|settings| settings.preflight = Preflight::Counted)
    }

    /// Puts the [`Decision`](ratelimit_core::Decision) into the extensions of the request, for the
    /// handler, and of the response, for outer layers.
    ///
    /// Each of the two takes allocations, so they are not made unless asked for.
    #[must_use]
    pub fn share_decision(self) -> RateLimitLayer {
        self.changed(|settings| settings.own.sharing = Sharing::Inserted)
    }

    /// Lends the [`Decision`](ratelimit_core::Decision) to the handler, which finds it with
    /// [`lent_decision`](crate::lent_decision) and at no price; unless it is
    /// [shared](Self::share_decision) anyway.
    #[must_use]
    pub fn lend_decision(self) -> RateLimitLayer {
        self.changed(|settings| {
            if settings.own.sharing == Sharing::Off {
                settings.own.sharing = Sharing::Lent;
            }
        })
    }

    /// Lets requests pass uncounted and untold where `is_exempt` says so.
    #[must_use]
    pub fn exempt_when(
        self,
        is_exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.changed(|settings| settings.exempt_when(is_exempt))
    }

    /// Decides and counts, but lets every request pass, and tells its client nothing beside
    /// [`marks`](Self::marks): [`Policy::shadow`], whatever policy is applied.
    ///
    /// For trying a limit: `rate_limiter_requests_total{allowed="false",shadow="true"}` shows what it
    /// would deny.
    #[must_use]
    pub fn shadow(self) -> RateLimitLayer {
        self.changed(Settings::shadow)
    }

    /// What adapters of frameworks add: the line to write where no request has a client address.
    #[must_use]
    pub fn advice(self, advice: &'static str) -> RateLimitLayer {
        self.changed(|settings| settings.advice = advice)
    }

    pub(crate) const fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    fn changed(mut self, change: impl FnOnce(&mut Settings)) -> RateLimitLayer {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    /// # Panics
    ///
    /// When the policy counts by a name that the layer gives no key.
    fn layer(&self, inner: S) -> RateLimit<S> {
        if let Err(unknown) = self.settings.check_key_names() {
            panic!("{unknown}");
        }
        RateLimit::new(inner, Arc::clone(&self.settings))
    }
}

fn client_key() -> impl Fn(&Parts) -> Result<Key, NoKey> + Send + Sync + 'static {
    let client = ClientKey::new();
    move |request| client.extract(request)
}

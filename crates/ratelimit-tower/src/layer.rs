//! What is limited, by whose key, and how that is told.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, request::Parts};
use ratelimit_core::{
    HeaderStyle, Key, Limiter, Policy, Registry, UnknownPolicy,
    adapter::{Mode, Preflight},
};
use tower_layer::Layer;

use crate::{
    framework::{Settings, Sharing},
    key::{ClientKey, KeyExtractor, NoKey},
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
        RateLimitLayer {
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
    pub fn named(
        limiter: Limiter,
        registry: &Registry,
        name: &str,
    ) -> Result<RateLimitLayer, UnknownPolicy> {
        let settings = Settings::named(limiter, registry, name, client_key())?;
        Ok(RateLimitLayer {
            settings: Arc::new(settings),
        })
    }

    /// Whose budget is spent; the client's, as [`ClientKey`](crate::ClientKey) finds it, unless set.
    #[must_use]
    pub fn key_by(self, key: impl KeyExtractor) -> RateLimitLayer {
        self.changed(|settings| settings.key_by(move |request| key.extract(request)))
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

    /// Makes the answer to a request over the limit.
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
        self.changed(|settings| settings.own.sharing = Sharing::On)
    }

    /// Lets requests pass uncounted and untold where `is_exempt` says so.
    #[must_use]
    pub fn exempt_when(
        self,
        is_exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.changed(|settings| settings.exempt_when(is_exempt))
    }

    /// Decides and counts, but lets every request pass, and tells its client nothing.
    ///
    /// For trying a limit: `rate_limiter_requests_total{allowed="false"}` shows what it would deny.
    #[must_use]
    pub fn shadow(self) -> RateLimitLayer {
        self.changed(|settings| settings.mode = Mode::Shadow)
    }

    /// What adapters of frameworks add: a look at each request's head before its key is sought,
    /// and the line to write where no request has a client address.
    #[must_use]
    pub fn adapted(self, prepare: fn(&mut Parts), advice: &'static str) -> RateLimitLayer {
        self.changed(|settings| {
            settings.own.prepare = Some(prepare);
            settings.advice = advice;
        })
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

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, Arc::clone(&self.settings))
    }
}

fn client_key() -> impl Fn(&Parts) -> Result<Key, NoKey> + Send + Sync + 'static {
    let client = ClientKey::new();
    move |request| client.extract(request)
}

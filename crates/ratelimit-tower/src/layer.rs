//! What is limited, by whose key, and how that is told.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use http::{HeaderValue, Method, Response, header, request::Parts};
use ratelimit_core::{Decision, HeaderStyle, Limiter, Policy, Verdict};
use tower_layer::Layer;

use crate::{
    headers::{self, Headers},
    key::{ClientKey, KeyExtractor, NoKey},
    rejection::{Cause, Rejection},
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

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) limiter: Limiter,
    pub(crate) policy: Policy,
    pub(crate) key: Arc<dyn KeyExtractor>,
    cost: Option<Arc<CostOf>>,
    on_denied: Option<Arc<AnswerTo>>,
    on_failed: Option<Arc<AnswerTo>>,
    headers: Headers,
    exposed: Option<HeaderValue>,
    preflight: Preflight,
    sharing: Sharing,
    told_no_client: Arc<AtomicBool>,
}

type CostOf = dyn Fn(&Parts) -> u64 + Send + Sync;
type AnswerTo = dyn Fn(&Rejection<'_>) -> Response<Bytes> + Send + Sync;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Preflight {
    Passed,
    Counted,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Off,
    On,
}

impl RateLimitLayer {
    /// Limits each client's requests by `policy`.
    pub fn new(limiter: Limiter, policy: Policy) -> RateLimitLayer {
        let headers = Headers::new(HeaderStyle::default(), &policy);
        let settings = Settings {
            limiter,
            policy,
            key: Arc::new(ClientKey::new()),
            cost: None,
            on_denied: None,
            on_failed: None,
            headers,
            exposed: None,
            preflight: Preflight::Passed,
            sharing: Sharing::Off,
            told_no_client: Arc::default(),
        };
        RateLimitLayer {
            settings: Arc::new(settings),
        }
    }

    /// Whose budget is spent; the client's, as [`ClientKey`] finds it, unless set.
    #[must_use]
    pub fn key_by(self, key: impl KeyExtractor) -> RateLimitLayer {
        self.changed(|settings| settings.key = Arc::new(key))
    }

    /// How much a request costs, 1 unless set; a cost of 0 looks without spending.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> RateLimitLayer {
        self.changed(|settings| settings.cost = Some(Arc::new(cost)))
    }

    /// Which headers tell what is left; [`HeaderStyle::XRateLimit`] unless set.
    #[must_use]
    pub fn headers(self, style: HeaderStyle) -> RateLimitLayer {
        self.changed(|settings| {
            settings.headers = Headers::new(style, &settings.policy);
            if settings.exposed.is_some() {
                settings.exposed = Some(settings.headers.exposed());
            }
        })
    }

    /// Lets scripts of other origins read the headers, by `Access-Control-Expose-Headers`.
    #[must_use]
    pub fn expose_headers(self) -> RateLimitLayer {
        self.changed(|settings| settings.exposed = Some(settings.headers.exposed()))
    }

    /// Makes the answer to a request over the limit.
    ///
    /// The layer adds its headers to it, and `Retry-After`, unless it says something stricter.
    #[must_use]
    pub fn on_denied(
        self,
        answer: impl Fn(&Rejection<'_>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.changed(|settings| settings.on_denied = Some(Arc::new(answer)))
    }

    /// Makes the answer to a request that could not be decided: without a key, or a store.
    #[must_use]
    pub fn on_failed(
        self,
        answer: impl Fn(&Rejection<'_>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.changed(|settings| settings.on_failed = Some(Arc::new(answer)))
    }

    /// Counts the preflight requests of CORS as well, which pass uncounted unless set.
    #[must_use]
    pub fn count_preflight(self) -> RateLimitLayer {
        self.changed(|settings| settings.preflight = Preflight::Counted)
    }

    /// Puts the [`Decision`] into the extensions of the request, for the
    /// handler, and of the response, for outer layers.
    ///
    /// Each of the two takes allocations, so they are not made unless asked for.
    #[must_use]
    pub fn share_decision(self) -> RateLimitLayer {
        self.changed(|settings| settings.sharing = Sharing::On)
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

impl Settings {
    /// Whether a request passes uncounted.
    pub(crate) fn passes(&self, request: &Parts) -> bool {
        self.preflight == Preflight::Passed
            && request.method == Method::OPTIONS
            && request.headers.contains_key(header::ORIGIN)
            && request
                .headers
                .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    }

    pub(crate) fn cost_of(&self, request: &Parts) -> u64 {
        self.cost.as_ref().map_or(1, |cost| cost(request))
    }

    /// Leaves the decision for the handler.
    pub(crate) fn share(&self, verdict: &Verdict, extensions: &mut http::Extensions) {
        if self.sharing == Sharing::On
            && let Some(decision) = verdict.decision()
        {
            extensions.insert(decision.clone());
        }
    }

    /// Tells the verdict in a response that the service gave.
    pub(crate) fn tell<B>(&self, verdict: &Verdict, response: &mut Response<B>) {
        if let Verdict::Checked(decision) = verdict {
            self.headers
                .write(&self.policy, decision, response.headers_mut());
            if let Some(exposed) = &self.exposed {
                headers::expose(exposed, response.headers_mut());
            }
        }
        // An inner layer that refused has the last word here as well.
        let decided = response.extensions().get::<Decision>().is_some();
        if !(decided && headers::is_refusal(response.headers())) {
            self.share(verdict, response.extensions_mut());
        }
    }

    /// The answer to a request that the verdict does not let pass.
    pub(crate) fn deny(&self, request: &Parts, verdict: &Verdict) -> Response<Bytes> {
        let rejection = |cause| Rejection {
            request,
            policy: &self.policy,
            cause,
        };
        match verdict.decision() {
            Some(decision) => {
                let denied = rejection(Cause::Denied(decision));
                let mut response = answer(&denied, self.on_denied.as_deref());
                self.tell(verdict, &mut response);
                response
            }
            None => answer(&rejection(Cause::Unavailable), self.on_failed.as_deref()),
        }
    }

    /// The answer to a request without a key.
    pub(crate) fn refuse(&self, request: &Parts, why: NoKey) -> Response<Bytes> {
        if why == NoKey::NoClient && !self.told_no_client.swap(true, Ordering::Relaxed) {
            tracing::error!(
                policy = self.policy.name(),
                "no request has a client address: serve each connection with \
                 WithPeer::new(service, peer), or set ClientKey::peer_by"
            );
        }
        let rejection = Rejection {
            request,
            policy: &self.policy,
            cause: Cause::NoKey(why),
        };
        answer(&rejection, self.on_failed.as_deref())
    }
}

fn answer(rejection: &Rejection<'_>, custom: Option<&AnswerTo>) -> Response<Bytes> {
    let response = match custom {
        Some(custom) => custom(rejection),
        None => rejection.response(),
    };
    rejection.complete(response)
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("limiter", &self.limiter)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

//! What a layer decides by, shared by all its services.

use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Response, header, request::Parts};
use ratelimit_core::{Decision, HeaderStyle, Limiter, Policy, Registry, Verdict};

use crate::{
    headers::{self, Headers},
    key::{ClientKey, KeyExtractor, NoKey},
    rejection::{Cause, Rejection},
};

const ADVICE: &str =
    "serve each connection with WithPeer::new(service, peer), or set ClientKey::peer_by";

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) limiter: Limiter,
    pub(crate) policy: Policy,
    pub(crate) named: Option<Named>,
    pub(crate) key: Arc<dyn KeyExtractor>,
    pub(crate) cost: Option<Arc<CostOf>>,
    pub(crate) exempt: Option<Arc<IsExempt>>,
    pub(crate) on_denied: Option<Arc<AnswerTo>>,
    pub(crate) on_failed: Option<Arc<AnswerTo>>,
    pub(crate) headers: Headers,
    pub(crate) exposed: Option<HeaderValue>,
    pub(crate) preflight: Preflight,
    pub(crate) sharing: Sharing,
    pub(crate) mode: Mode,
    pub(crate) prepare: Option<fn(&mut Parts)>,
    pub(crate) advice: &'static str,
    told_no_client: Arc<AtomicBool>,
}

type CostOf = dyn Fn(&Parts) -> u64 + Send + Sync;
type IsExempt = dyn Fn(&Parts) -> bool + Send + Sync;
type AnswerTo = dyn Fn(&Rejection<'_>) -> Response<Bytes> + Send + Sync;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preflight {
    Passed,
    Counted,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    Off,
    On,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Enforced,
    Shadow,
}

/// Where the policy is looked up, and the settings under the one that was found last.
pub(crate) struct Named {
    registry: Registry,
    latest: RwLock<Option<(u64, Arc<Settings>)>>,
}

impl Named {
    pub(crate) const fn new(registry: Registry) -> Named {
        Named {
            registry,
            latest: RwLock::new(None),
        }
    }
}

impl Clone for Named {
    /// What was found last belongs to the settings it was made of, so a clone looks for itself.
    fn clone(&self) -> Named {
        Named::new(self.registry.clone())
    }
}

impl Settings {
    pub(crate) fn new(limiter: Limiter, policy: Policy) -> Settings {
        let headers = Headers::new(HeaderStyle::default(), &policy);
        Settings {
            limiter,
            policy,
            named: None,
            key: Arc::new(ClientKey::new()),
            cost: None,
            exempt: None,
            on_denied: None,
            on_failed: None,
            headers,
            exposed: None,
            preflight: Preflight::Passed,
            sharing: Sharing::Off,
            mode: Mode::Enforced,
            prepare: None,
            advice: ADVICE,
            told_no_client: Arc::default(),
        }
    }

    /// The same settings with the policy as the registry has it now, where that is another.
    pub(crate) fn refreshed(&self) -> Option<Arc<Settings>> {
        let named = self.named.as_ref()?;
        let version = named.registry.version();
        let latest = named.latest.read().unwrap_or_else(PoisonError::into_inner);
        let mut last = self.policy.clone();
        if let Some((seen, settings)) = &*latest {
            if *seen == version {
                return Some(Arc::clone(settings));
            }
            last = settings.policy.clone();
        }
        drop(latest);
        let policy = named.registry.get(self.policy.name());
        let settings = Arc::new(self.under(policy.unwrap_or(last)));
        let mut latest = named.latest.write().unwrap_or_else(PoisonError::into_inner);
        *latest = Some((version, Arc::clone(&settings)));
        Some(settings)
    }

    fn under(&self, policy: Policy) -> Settings {
        Settings {
            headers: Headers::new(self.headers.style(), &policy),
            policy,
            named: None,
            ..self.clone()
        }
    }

    /// Lets the framework's adapter look at a request's head.
    pub(crate) fn prepare(&self, request: &mut Parts) {
        if let Some(prepare) = self.prepare {
            prepare(request);
        }
    }

    /// Whether a request passes uncounted.
    pub(crate) fn passes(&self, request: &Parts) -> bool {
        self.is_preflight(request) || self.exempt.as_ref().is_some_and(|exempt| exempt(request))
    }

    fn is_preflight(&self, request: &Parts) -> bool {
        self.preflight == Preflight::Passed
            && request.method == Method::OPTIONS
            && request.headers.contains_key(header::ORIGIN)
            && request
                .headers
                .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    }

    pub(crate) fn cost_of(&self, request: &Parts) -> u64 {
        match &self.cost {
            Some(cost) => cost(request),
            None => self.policy.cost().get(),
        }
    }

    pub(crate) fn is_shadow(&self) -> bool {
        self.mode == Mode::Shadow
    }

    /// Whether a request goes on to the service.
    pub(crate) fn lets_pass(&self, verdict: &Verdict) -> bool {
        self.is_shadow() || verdict.is_allowed()
    }

    /// How long a request waits before it goes on.
    pub(crate) fn delay(&self, verdict: &Verdict) -> Duration {
        match (self.mode, verdict.decision()) {
            (Mode::Enforced, Some(decision)) => decision.delay(),
            _ => Duration::ZERO,
        }
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
        if self.is_shadow() {
            return;
        }
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
            let policy = self.policy.name();
            let advice = self.advice;
            tracing::error!(policy, "no request has a client address: {advice}");
            // The one mistake that every newcomer makes, most of them without a subscriber.
            if !tracing::dispatcher::has_been_set() {
                eprintln!("rate limit {policy:?}: no request has a client address: {advice}");
            }
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

//! What a middleware decides by, shared by all its services.

use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        Method,
        header::{self, HeaderMap, HeaderValue},
    },
};
use ratelimit_core::{HeaderStyle, Limiter, Policy, Registry, Verdict};

use crate::{
    headers::{self, Headers},
    key::{ClientKey, KeyExtractor, NoKey},
    rejection::{Cause, Rejection},
};

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
    pub(crate) mode: Mode,
    told_no_client: Arc<AtomicBool>,
}

type CostOf = dyn Fn(&HttpRequest) -> u64 + Send + Sync;
type IsExempt = dyn Fn(&HttpRequest) -> bool + Send + Sync;
type AnswerTo = dyn Fn(&Rejection<'_>) -> HttpResponse + Send + Sync;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preflight {
    Passed,
    Counted,
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
            mode: Mode::Enforced,
            told_no_client: Arc::default(),
        }
    }

    /// The settings with the policy as the registry has it now.
    pub(crate) fn current(self: &Arc<Settings>) -> Arc<Settings> {
        let Some(named) = &self.named else {
            return Arc::clone(self);
        };
        let version = named.registry.version();
        let latest = named.latest.read().unwrap_or_else(PoisonError::into_inner);
        let mut last = self.policy.clone();
        if let Some((seen, settings)) = &*latest {
            if *seen == version {
                return Arc::clone(settings);
            }
            last = settings.policy.clone();
        }
        drop(latest);
        let policy = named.registry.get(self.policy.name());
        let settings = Arc::new(self.under(policy.unwrap_or(last)));
        let mut latest = named.latest.write().unwrap_or_else(PoisonError::into_inner);
        *latest = Some((version, Arc::clone(&settings)));
        settings
    }

    fn under(&self, policy: Policy) -> Settings {
        Settings {
            headers: Headers::new(self.headers.style(), &policy),
            policy,
            named: None,
            ..self.clone()
        }
    }

    /// Whether a request passes uncounted.
    pub(crate) fn passes(&self, request: &HttpRequest) -> bool {
        self.is_preflight(request) || self.exempt.as_ref().is_some_and(|exempt| exempt(request))
    }

    fn is_preflight(&self, request: &HttpRequest) -> bool {
        let headers = request.headers();
        self.preflight == Preflight::Passed
            && *request.method() == Method::OPTIONS
            && headers.contains_key(header::ORIGIN)
            && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    }

    pub(crate) fn cost_of(&self, request: &HttpRequest) -> u64 {
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

    /// Tells the verdict in the headers of a response.
    pub(crate) fn tell(&self, verdict: &Verdict, headers: &mut HeaderMap) {
        if self.is_shadow() {
            return;
        }
        if let Verdict::Checked(decision) = verdict {
            self.headers.write(&self.policy, decision, headers);
            if let Some(exposed) = &self.exposed {
                headers::expose(exposed, headers);
            }
        }
    }

    /// The answer to a request that the verdict does not let pass.
    pub(crate) fn deny(&self, request: &HttpRequest, verdict: &Verdict) -> HttpResponse {
        let rejection = |cause| Rejection {
            request,
            policy: &self.policy,
            cause,
        };
        match verdict.decision() {
            Some(decision) => {
                let denied = rejection(Cause::Denied(decision));
                let mut response = answer(&denied, self.on_denied.as_deref());
                self.tell(verdict, response.headers_mut());
                response
            }
            None => answer(&rejection(Cause::Unavailable), self.on_failed.as_deref()),
        }
    }

    /// The answer to a request without a key.
    pub(crate) fn refuse(&self, request: &HttpRequest, why: NoKey) -> HttpResponse {
        if why == NoKey::NoClient && !self.told_no_client.swap(true, Ordering::Relaxed) {
            let policy = self.policy.name();
            tracing::error!(
                policy,
                "no request has a client address: listen on TCP, add TestRequest::peer_addr in a \
                 test, or ClientAddr::trust_unix behind a proxy on a unix socket"
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

fn answer(
    rejection: &Rejection<'_>,
    custom: Option<&(dyn Fn(&Rejection<'_>) -> HttpResponse + Send + Sync)>,
) -> HttpResponse {
    let mut response = match custom {
        Some(custom) => custom(rejection),
        None => rejection.response(),
    };
    rejection.complete(&mut response);
    response
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("limiter", &self.limiter)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

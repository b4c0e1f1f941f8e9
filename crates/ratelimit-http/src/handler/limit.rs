//! The limit of one handler.

use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    client_ip::HeaderLines as _,
    framework::Framework,
    handler::{DeclaredHandler, DeclaredPolicy, global_registry, policy_for_handler},
    key::{ApiKey, HeaderKey, KeyError},
    middleware::{Config, HasDefaults, Rejection, global_limiter},
    policy::{CostSource, HttpPolicy},
    registry::{Registry, UnknownPolicy},
    response::HeaderStyle,
};
use ratelimit_core::{FailureMode, Key, Limiter};

/// The end of the log line about a policy that is missing at run time.
const UNKNOWN_POLICY_HELP: &str = "set_global_registry(registry) or registry.check_declared() \
    at the start of main says so before a request does";

/// The texts of an attribute are parsed when it is expanded, so they parse again at run time.
const PARSED: &str = "the text was parsed when it was expanded";

/// The limit of one handler, as its `#[rate_limit(...)]` says.
///
/// The attribute `#[rate_limit("5/min", scope = "search", key = "header:x-user", shadow)]` expands to this static:
///
/// ```text
/// static LIMIT: HandlerLimit = HandlerLimit::text("search", "5/min")
///     .key(HandlerKey::Header("x-user"))
///     .shadow();
/// ```
///
/// - The attribute expands to a `static` of this type, so all setters are `const`.
/// - [`config`](HandlerLimit::config) makes the settings on the first request and again only when the
///   registry has another policy of the same name.
#[derive(Debug)]
pub struct HandlerLimit<F: Framework> {
    source: PolicySource,
    key: HandlerKey<F>,
    cost: Option<fn(&F::Request) -> u64>,
    exempt: Option<fn(&F::Request) -> bool>,
    cost_source: Option<&'static str>,
    charge_on: Option<&'static str>,
    settle_source: Option<&'static str>,
    tier: Option<TierOfRequest<F>>,
    headers: Option<HeaderStyle>,
    failure_mode: Option<FailureMode>,
    on_denied: Option<ResponseToRejection<F>>,
    marks_responses: bool,
    is_shadow: bool,
    /// The settings of the latest policy, one for each [`LimiterOrigin`].
    latest: RwLock<[Option<LatestConfig<F>>; 3]>,
    logged: AtomicBool,
}

/// A policy as its registry has it, and the settings that were made for it.
type LatestConfig<F> = (HttpPolicy, Arc<Config<F>>);
/// A function that names the tier of a request.
type TierOfRequest<F> = fn(&<F as Framework>::Request) -> Option<String>;
/// A function that makes the response to a request that is denied or blocked.
type ResponseToRejection<F> = fn(&Rejection<'_, F>) -> <F as Framework>::Response;

/// The policy of an attribute: limits that it contains, or a name in a registry.
#[derive(Clone, Copy, Debug)]
enum PolicySource {
    Handler {
        handler: DeclaredHandler,
        limits: &'static str,
    },
    Scope {
        /// The name that the handler shares with others.
        name: &'static str,
        limits: &'static str,
    },
    Registry(DeclaredPolicy),
}

/// The limiter of a request, as far as the failure mode depends on it. A handler can meet all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimiterOrigin {
    /// The limiter of the process.
    Global,
    /// A limiter that the request carries, without a failure mode.
    Carried,
    /// A limiter that the request carries, with a failure mode.
    CarriedWithMode,
}

impl LimiterOrigin {
    fn of(carried: Option<&Limiter>) -> LimiterOrigin {
        match carried {
            None => LimiterOrigin::Global,
            Some(limiter) if limiter.has_failure_mode() => LimiterOrigin::CarriedWithMode,
            Some(_) => LimiterOrigin::Carried,
        }
    }
}

/// The key by which a handler's requests are counted. Only the code that the attribute generates names it, so it is
/// exhaustive.
#[derive(Debug)]
pub enum HandlerKey<F: Framework> {
    /// The client's address.
    Client,
    /// The caller's API key, as [`ApiKey`] finds it.
    ApiKey,
    /// The value of the header with this name, in lower case.
    Header(&'static str),
    /// The key that a function finds.
    Function(fn(&F::Request) -> Result<Key, KeyError>),
}

impl<F: Framework> HandlerLimit<F> {
    /// The limits of a text, under the name of a scope.
    pub const fn text(name: &'static str, limits: &'static str) -> HandlerLimit<F> {
        HandlerLimit::new(PolicySource::Scope { name, limits })
    }

    /// The limits of a text, under the name of the handler.
    pub const fn of_handler(handler: DeclaredHandler, limits: &'static str) -> HandlerLimit<F> {
        HandlerLimit::new(PolicySource::Handler { handler, limits })
    }

    /// The policy that the attribute names.
    pub const fn named(policy: DeclaredPolicy) -> HandlerLimit<F> {
        HandlerLimit::new(PolicySource::Registry(policy))
    }

    const fn new(source: PolicySource) -> HandlerLimit<F> {
        HandlerLimit {
            source,
            key: HandlerKey::Client,
            cost: None,
            exempt: None,
            cost_source: None,
            charge_on: None,
            settle_source: None,
            tier: None,
            headers: None,
            failure_mode: None,
            on_denied: None,
            marks_responses: false,
            is_shadow: false,
            latest: RwLock::new([None, None, None]),
            logged: AtomicBool::new(false),
        }
    }

    /// Sets the key by which requests are counted; the client's address by default.
    #[must_use]
    pub const fn key(mut self, key: HandlerKey<F>) -> HandlerLimit<F> {
        self.key = key;
        self
    }

    /// Sets the cost of a request.
    #[must_use]
    pub const fn cost(mut self, cost: fn(&F::Request) -> u64) -> HandlerLimit<F> {
        self.cost = Some(cost);
        self
    }

    /// Exempts the requests for which the function returns true.
    #[must_use]
    pub const fn exempt_when(mut self, exempt: fn(&F::Request) -> bool) -> HandlerLimit<F> {
        self.exempt = Some(exempt);
        self
    }

    /// Takes the cost of a request from `body` or `header:NAME`. A registry's policy keeps its own cost.
    #[must_use]
    pub const fn cost_source(mut self, source: &'static str) -> HandlerLimit<F> {
        self.cost_source = Some(source);
        self
    }

    /// Refunds requests unless their response has one of these statuses, such as `401, 4xx`. A registry's
    /// policy keeps its own statuses.
    #[must_use]
    pub const fn charge_on(mut self, statuses: &'static str) -> HandlerLimit<F> {
        self.charge_on = Some(statuses);
        self
    }

    /// Takes the actual cost of a request from `response-bytes` or `header:NAME`. A registry's policy keeps its own
    /// source.
    #[must_use]
    pub const fn settle_source(mut self, source: &'static str) -> HandlerLimit<F> {
        self.settle_source = Some(source);
        self
    }

    /// Names the tier of a request.
    #[must_use]
    pub const fn tier(mut self, tier: fn(&F::Request) -> Option<String>) -> HandlerLimit<F> {
        self.tier = Some(tier);
        self
    }

    /// Sets the header fields that report the remaining budget.
    #[must_use]
    pub const fn headers(mut self, style: HeaderStyle) -> HandlerLimit<F> {
        self.headers = Some(style);
        self
    }

    /// Sets the failure mode. A registry's policy and a limiter that a request carries keep their own.
    #[must_use]
    pub const fn failure_mode(mut self, mode: FailureMode) -> HandlerLimit<F> {
        self.failure_mode = Some(mode);
        self
    }

    /// Sets the response to a request that is denied or blocked.
    #[must_use]
    pub const fn on_denied(
        mut self,
        response: fn(&Rejection<'_, F>) -> F::Response,
    ) -> HandlerLimit<F> {
        self.on_denied = Some(response);
        self
    }

    /// Marks responses to requests that exceeded a soft limit or that shadow mode let pass.
    #[must_use]
    pub const fn mark_responses(mut self) -> HandlerLimit<F> {
        self.marks_responses = true;
        self
    }

    /// Decides and counts, and denies nothing.
    #[must_use]
    pub const fn shadow(mut self) -> HandlerLimit<F> {
        self.is_shadow = true;
        self
    }

    /// The policy of this moment: the handler's own, or the one that the registry has now.
    fn policy(
        &self,
        registry: impl FnOnce() -> Option<Registry>,
    ) -> Result<HttpPolicy, UnknownPolicy> {
        match self.source {
            PolicySource::Handler { handler, limits } => {
                let policy = policy_for_handler(&handler.policy_name(), limits);
                Ok(policy.expect(PARSED).into())
            }
            PolicySource::Scope { name, limits } => {
                Ok(policy_for_handler(name, limits).expect(PARSED).into())
            }
            PolicySource::Registry(declared) => {
                let registry = registry().or_else(global_registry).unwrap_or_default();
                registry.get(declared.policy).ok_or_else(|| {
                    let unknown = UnknownPolicy::for_declared(declared, &registry);
                    self.log_once(declared.policy, &unknown);
                    unknown
                })
            }
        }
    }

    /// Adds the terms of the attribute that its policy does not set itself.
    fn with_terms(&self, mut policy: HttpPolicy, origin: LimiterOrigin) -> HttpPolicy {
        let has_cost =
            *policy.cost_source() != CostSource::Fixed || policy.policy().cost().get() > 1;
        if let (Some(source), false) = (self.cost_source, has_cost) {
            policy = policy.with_cost_source(source.parse().expect(PARSED));
        }
        if let (Some(statuses), None) = (self.charge_on, policy.charge_on()) {
            policy = policy.with_charge_on(statuses.parse().expect(PARSED));
        }
        if let (Some(source), None) = (self.settle_source, policy.settle_source()) {
            policy = policy.with_settle_source(source.parse().expect(PARSED));
        }
        let has_mode = policy.policy().failure_mode().is_some();
        if let Some(mode) = self.failure_mode
            && !has_mode
            && origin != LimiterOrigin::CarriedWithMode
        {
            policy = policy.with_failure_mode(mode);
        }
        policy
    }

    /// Applies the options of the attribute to the adapter's default settings.
    fn configure(&self, mut config: Config<F>) -> Config<F> {
        match self.key {
            HandlerKey::Client => {}
            HandlerKey::ApiKey => {
                config.key_by(|request| ApiKey.extract_key(&F::head(request)));
                config.key_kinds(ApiKey.kinds());
            }
            HandlerKey::Header(name) => {
                let header = HeaderKey::new(name);
                let kinds = header.kinds();
                config.key_by(move |request| header.extract_key(F::head(request).lines(name)));
                config.key_kinds(kinds);
            }
            HandlerKey::Function(function) => config.key_by(function),
        }
        if let Some(cost) = self.cost {
            config.cost(cost);
        }
        if let Some(exempt) = self.exempt {
            config.exempt_when(exempt);
        }
        if let Some(tier) = self.tier {
            config.tier(tier);
        }
        if let Some(style) = self.headers {
            config.headers(style);
        }
        if let Some(response) = self.on_denied {
            config.on_denied(response);
        }
        if self.marks_responses {
            config.mark_responses();
        }
        if self.is_shadow {
            config.shadow();
        }
        config
    }

    /// Logs the first unknown policy of this handler.
    fn log_once(&self, policy: &str, unknown: &UnknownPolicy) {
        if self.logged.swap(true, Ordering::Relaxed) {
            return;
        }
        F::error(policy, format_args!("{unknown}; {UNKNOWN_POLICY_HELP}"));
        if !tracing::dispatcher::has_been_set() {
            eprintln!("rate limit: {unknown}; {UNKNOWN_POLICY_HELP}");
        }
    }
}

impl<F: HasDefaults> HandlerLimit<F> {
    /// The settings with the current policy, and the limiter.
    ///
    /// - `carried` is the limiter that the request carries; the global one is used if it has none.
    /// - `registry` returns the registry that the request carries; the global one is used if it has none.
    /// - `new` makes the adapter's default settings.
    ///
    /// The failure mode is the first of these: that of the registry's policy, of a limiter that the request
    /// carries, of the attribute, of the global limiter, of the process's defaults. The settings of each case
    /// are made once.
    ///
    /// # Errors
    ///
    /// [`UnknownPolicy`] if the registry has no policy of the declared name. The first such error is logged.
    pub fn config(
        &self,
        carried: Option<Limiter>,
        registry: impl FnOnce() -> Option<Registry>,
        new: impl FnOnce(Limiter, HttpPolicy) -> Config<F>,
    ) -> Result<(Arc<Config<F>>, Limiter), UnknownPolicy> {
        let origin = LimiterOrigin::of(carried.as_ref());
        let limiter = carried.unwrap_or_else(global_limiter::<F>);
        let config = self.config_for(&limiter, origin, registry, new)?;
        Ok((config, limiter))
    }

    /// The settings with the current policy, from the cache if the policy is the same.
    fn config_for(
        &self,
        limiter: &Limiter,
        origin: LimiterOrigin,
        registry: impl FnOnce() -> Option<Registry>,
        new: impl FnOnce(Limiter, HttpPolicy) -> Config<F>,
    ) -> Result<Arc<Config<F>>, UnknownPolicy> {
        let index = origin as usize; // One statement below: the read lock ends before the write lock is taken.
        let latest = self.latest.read().unwrap_or_else(PoisonError::into_inner)[index].clone();
        let is_fixed = !matches!(self.source, PolicySource::Registry(_));
        if let (true, Some((_, config))) = (is_fixed, &latest) {
            return Ok(Arc::clone(config));
        }
        let policy = self.policy(registry)?;
        match latest {
            Some((before, config)) if before == policy => Ok(config),
            _ => {
                let config = new(limiter.clone(), self.with_terms(policy.clone(), origin));
                let config = Arc::new(self.configure(config)).with_defaults();
                if is_fixed {
                    config.log_policy_warnings();
                } else {
                    config.log_unmatched_keys();
                }
                let mut latest = self.latest.write().unwrap_or_else(PoisonError::into_inner);
                latest[index] = Some((policy, Arc::clone(&config)));
                Ok(config)
            }
        }
    }
}

/// The cost in an attribute: a number, or a function of the request.
pub trait CostOf<R> {
    /// The cost of `request`.
    fn cost_of(&self, request: &R) -> u64;
}

impl<R> CostOf<R> for u64 {
    fn cost_of(&self, _: &R) -> u64 {
        *self
    }
}

impl<R, F: Fn(&R) -> u64> CostOf<R> for F {
    fn cost_of(&self, request: &R) -> u64 {
        self(request)
    }
}

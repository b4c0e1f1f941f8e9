//! The settings of a layer.

use std::{
    fmt,
    sync::{Arc, RwLock, atomic::AtomicBool},
};

#[cfg(feature = "tokio")]
use crate::middleware::tier_resolver::TierResolver;
use crate::{
    framework::Framework,
    key::{ClientAddress, ClientKey, KeyError, KeyKinds},
    middleware::{
        key_error_log::KeyErrorLog, memory_warning, policy_flags::PolicyFlags, rejection::Rejection,
    },
    policy::HttpPolicy,
    registry::{Registry, UnknownPolicy},
    response::{HeaderStyle, HeaderWriter},
};
use ratelimit_core::{FailureMode, Key, Limiter};

/// The settings of a layer, shared by all its services.
///
/// - [`check`](Config::check), [`complete`](Config::complete) and [`finish`](Config::finish) are the three
///   steps of a request.
/// - Under a [name](Config::by_name), [`current`](Config::current) follows the registry: a policy that is
///   changed there applies to the next request, and it cannot be removed.
/// - Setters change one layer. A layer is cloned before it is changed, so layers that were cloned before
///   keep their settings. All clones share the budgets of the [`Limiter`].
#[expect(
    clippy::struct_excessive_bools,
    reason = "the settings are independent"
)]
#[derive(Clone)]
pub struct Config<F: Framework> {
    /// The limiter that counts and decides.
    pub limiter: Limiter,
    /// Into which extensions the adapter inserts the decision.
    pub sharing: DecisionSharing,
    /// The instruction for services that do not know the peer's address. It ends the log line about it.
    pub missing_client_help: &'static str,
    pub(crate) counts_preflight: bool,
    pub(crate) policy: HttpPolicy,
    pub(crate) flags: PolicyFlags,
    pub(crate) key: Arc<KeyOf<F>>,
    pub(crate) key_kinds: KeyKinds,
    /// Shared by clones with the same extractor.
    pub(crate) named_keys: Vec<NamedKey<F>>,
    pub(crate) client_address: Arc<ClientAddressOf<F>>,
    /// The function of [`client_address_by`](Config::client_address_by).
    pub(crate) own_address: Option<Arc<OwnAddressOf<F>>>,
    pub(crate) tier: Option<Arc<TierOf<F>>>,
    #[cfg(feature = "tokio")]
    pub(crate) tier_resolver: Option<TierResolver>,
    pub(crate) cost: Option<Arc<CostOfRequest<F>>>,
    pub(crate) exempt: Option<Arc<IsExempt<F>>>,
    pub(crate) on_denied: Option<Arc<ResponseTo<F>>>,
    pub(crate) on_error: Option<Arc<ResponseTo<F>>>,
    pub(crate) headers: HeaderWriter<F>,
    pub(crate) logged_no_client: Arc<AtomicBool>,
    pub(crate) key_error_log: Arc<KeyErrorLog>,
    pub(crate) logged_unknown_key: Arc<AtomicBool>,
    is_shadow: bool,
    /// Whether the key is the built-in one, which the process's defaults may replace.
    pub(crate) has_default_key: bool,
    /// Whether the header style is the built-in one, which the process's defaults may replace.
    pub(crate) has_default_headers: bool,
    /// The mode of policies that have none.
    pub(crate) default_failure_mode: Option<FailureMode>,
    pub(crate) lookup: Option<RegistryLookup<F>>,
}

/// A name of a key, and the function that finds the key.
type NamedKey<F> = (Arc<str>, Arc<KeyOf<F>>);
/// A function that finds the key of a request.
pub(crate) type KeyOf<F> =
    dyn Fn(&<F as Framework>::Request) -> Result<Key, KeyError> + Send + Sync;
/// A function that computes the cost of a request.
type CostOfRequest<F> = dyn Fn(&<F as Framework>::Request) -> u64 + Send + Sync;
/// A function that finds the client's address.
pub(crate) type ClientAddressOf<F> =
    dyn Fn(&<F as Framework>::Request) -> Result<ClientAddress, KeyError> + Send + Sync;
/// A function that finds the client's address for some requests.
type OwnAddressOf<F> =
    dyn Fn(&<F as Framework>::Request) -> Option<Result<ClientAddress, KeyError>> + Send + Sync;
/// A function that names the tier of a request.
type TierOf<F> = dyn Fn(&<F as Framework>::Request) -> Option<String> + Send + Sync;
/// A function that exempts requests.
type IsExempt<F> = dyn Fn(&<F as Framework>::Request) -> bool + Send + Sync;
/// A function that makes the response to a rejected request.
pub(crate) type ResponseTo<F> =
    dyn Fn(&Rejection<'_, F>) -> <F as Framework>::Response + Send + Sync;

/// Into which extensions the [`Decision`](ratelimit_core::Decision) about a request is inserted.
///
/// Each insertion allocates, so plain tower shares nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecisionSharing {
    /// Into none.
    #[default]
    Off,
    /// Into those of the request, for the handler.
    Request,
    /// Into those of the request, and of the response for outer layers.
    RequestAndResponse,
}

/// The registry of a policy that is known by name, and the settings with its latest version.
pub(crate) struct RegistryLookup<F: Framework> {
    pub(crate) registry: Registry,
    /// The policy's name. While it exists, the registry keeps the policy.
    name: Arc<str>,
    /// The registry's version, and the settings that were made for it.
    pub(crate) latest: RwLock<Option<(u64, Arc<Config<F>>)>>,
}

impl<F: Framework> RegistryLookup<F> {
    const fn new(registry: Registry, name: Arc<str>) -> RegistryLookup<F> {
        RegistryLookup {
            registry,
            name,
            latest: RwLock::new(None),
        }
    }
}

impl<F: Framework> Clone for RegistryLookup<F> {
    /// The cached settings belong to the original, so a clone starts without them.
    fn clone(&self) -> RegistryLookup<F> {
        RegistryLookup::new(self.registry.clone(), Arc::clone(&self.name))
    }
}

impl<F: Framework> Config<F> {
    /// Settings that limit the requests of each `key` by `policy`.
    pub fn new(
        limiter: Limiter,
        policy: HttpPolicy,
        key: impl Fn(&F::Request) -> Result<Key, KeyError> + Send + Sync + 'static,
    ) -> Config<F> {
        memory_warning::count_limiter(&limiter);
        let headers = HeaderWriter::new(HeaderStyle::default(), policy.policy());
        let client = ClientKey::new();
        Config {
            limiter,
            sharing: DecisionSharing::Off,
            missing_client_help: F::MISSING_CLIENT_HELP,
            counts_preflight: false,
            flags: PolicyFlags::of(&policy),
            policy,
            key: Arc::new(key),
            key_kinds: KeyKinds::unknown(),
            named_keys: Vec::new(),
            client_address: Arc::new(move |request| client.client_address(&F::head(request))),
            own_address: None,
            tier: None,
            #[cfg(feature = "tokio")]
            tier_resolver: None,
            cost: None,
            exempt: None,
            on_denied: None,
            on_error: None,
            headers,
            logged_no_client: Arc::default(),
            key_error_log: Arc::default(),
            logged_unknown_key: Arc::default(),
            is_shadow: false,
            has_default_key: true,
            has_default_headers: true,
            default_failure_mode: None,
            lookup: None,
        }
    }

    /// Settings that limit by the policy called `name`, in the registry's latest version.
    ///
    /// # Errors
    ///
    /// [`UnknownPolicy`] if the registry has no policy of that name.
    pub fn by_name(
        limiter: Limiter,
        registry: &Registry,
        name: &str,
        key: impl Fn(&F::Request) -> Result<Key, KeyError> + Send + Sync + 'static,
    ) -> Result<Config<F>, UnknownPolicy> {
        let policy = registry.get_for_layer(name);
        let (policy, name) = policy.ok_or_else(|| UnknownPolicy::new(name, registry))?;
        Ok(Config {
            lookup: Some(RegistryLookup::new(registry.clone(), name)),
            ..Config::new(limiter, policy, key)
        })
    }

    /// The policy that is applied.
    pub const fn policy(&self) -> &HttpPolicy {
        &self.policy
    }

    /// Sets the function that finds the key of a request. The kinds of its keys are unknown.
    pub fn key_by(
        &mut self,
        key: impl Fn(&F::Request) -> Result<Key, KeyError> + Send + Sync + 'static,
    ) {
        self.key = Arc::new(key);
        self.has_default_key = false;
        self.key_kinds = KeyKinds::unknown();
    }

    /// Sets the kinds of keys that the function of [`key_by`](Self::key_by) makes.
    pub fn key_kinds(&mut self, kinds: KeyKinds) {
        self.key_kinds = kinds;
    }

    /// Logs what a layer's policy has wrong that only shows together with its key and its limiter. An adapter
    /// calls it when the layer is put over a service.
    pub fn log_policy_warnings(&self) {
        self.log_unmatched_keys();
        // A policy of a registry changes its limits while it keeps its name.
        if self.lookup.is_none() {
            self.limiter.announce_policy(self.policy.policy());
        }
    }

    /// Sets the function that finds a client's address, for rules about addresses and limits `by ip`.
    ///
    /// If the function returns `None`, the address is the one that the process's defaults find, or else the
    /// peer's.
    pub fn client_address_by(
        &mut self,
        find: impl Fn(&F::Request) -> Option<Result<ClientAddress, KeyError>> + Send + Sync + 'static,
    ) {
        let find: Arc<OwnAddressOf<F>> = Arc::new(find);
        self.own_address = Some(Arc::clone(&find));
        let client = ClientKey::new();
        self.client_address = Arc::new(move |request| {
            find(request).unwrap_or_else(|| client.client_address(&F::head(request)))
        });
    }

    /// Sets the function that names the tier of a request.
    ///
    /// The policy chooses the tier by the key if the function returns `None`.
    pub fn tier(&mut self, tier: impl Fn(&F::Request) -> Option<String> + Send + Sync + 'static) {
        self.tier = Some(Arc::new(tier));
    }

    /// Sets the resolver that looks tiers up, for requests whose tier [`tier`](Config::tier) does not name.
    ///
    /// A policy without tiers is not looked up; a warning is logged now.
    #[cfg(feature = "tokio")]
    pub fn tier_async(&mut self, resolver: TierResolver) {
        if !self.flags.has_tiers {
            tracing::warn!(
                policy = self.policy.name(),
                "the tier resolver has no effect: the policy has no tiers"
            );
        }
        self.tier_resolver = Some(resolver);
    }

    /// Sets the function that computes the cost of a request, in place of the policy's cost.
    pub fn cost(&mut self, cost: impl Fn(&F::Request) -> u64 + Send + Sync + 'static) {
        self.cost = Some(Arc::new(cost));
    }

    /// Sets the function that exempts requests: they pass, are not counted and get no headers.
    pub fn exempt_when(&mut self, exempt: impl Fn(&F::Request) -> bool + Send + Sync + 'static) {
        self.exempt = Some(Arc::new(exempt));
    }

    /// Counts the preflight requests of CORS, which pass uncounted by default.
    pub fn count_preflight(&mut self) {
        self.counts_preflight = true;
    }

    /// Sets the header fields that report the remaining budget.
    pub fn headers(&mut self, style: HeaderStyle) {
        self.headers = self.headers.with_style(style, self.policy.policy());
        self.has_default_headers = false;
    }

    /// Lists the header fields in `Access-Control-Expose-Headers`.
    pub fn expose_headers(&mut self) {
        self.headers = self.headers.clone().with_exposed();
    }

    /// Marks responses to requests that exceeded a soft limit or that a shadow policy would have denied.
    pub fn mark_responses(&mut self) {
        self.headers = self.headers.clone().with_marks();
    }

    /// Puts the policy into shadow mode: it decides and counts, and denies nothing.
    pub fn shadow(&mut self) {
        self.is_shadow = true;
        self.policy = self.policy.clone().shadow();
    }

    /// Sets the function that makes the response to a request that is denied or blocked.
    pub fn on_denied(
        &mut self,
        response: impl Fn(&Rejection<'_, F>) -> F::Response + Send + Sync + 'static,
    ) {
        self.on_denied = Some(Arc::new(response));
    }

    /// Sets the function that makes the response to a request that could not be decided.
    pub fn on_error(
        &mut self,
        response: impl Fn(&Rejection<'_, F>) -> F::Response + Send + Sync + 'static,
    ) {
        self.on_error = Some(Arc::new(response));
    }

    /// Logs an error of the configuration, on standard error if the program has no subscriber.
    pub(crate) fn log_error(&self, error: fmt::Arguments<'_>) {
        F::error(self.policy.name(), error);
        if !tracing::dispatcher::has_been_set() {
            eprintln!("rate limit: {error}");
        }
    }

    /// The same settings for another policy.
    pub(crate) fn with_policy(&self, policy: HttpPolicy) -> Config<F> {
        let policy = self.completed(policy);
        Config {
            headers: self.headers.with_policy(policy.policy()),
            flags: PolicyFlags::of(&policy),
            policy,
            lookup: None,
            ..self.clone()
        }
    }

    /// The policy with the settings of the layer and the process: shadow mode and the failure mode.
    pub(crate) fn completed(&self, mut policy: HttpPolicy) -> HttpPolicy {
        if self.is_shadow {
            policy = policy.shadow();
        }
        match self.default_failure_mode {
            Some(mode) if policy.policy().failure_mode().is_none() => {
                policy.with_failure_mode(mode)
            }
            _ => policy,
        }
    }
}

impl<F: Framework> fmt::Debug for Config<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("limiter", &self.limiter)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

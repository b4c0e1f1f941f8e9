//! What a layer decides by, shared by all its services.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock, atomic::AtomicBool},
};

use crate::{
    key::{ClientAddress, ClientKey, KeyError, NamedKey},
    middleware::{framework::Framework, policy_flags::PolicyFlags, rejection::Rejection},
    policy::HttpPolicy,
    response::HeaderWriter,
};
use crate::{
    registry::{Registry, UnknownPolicy},
    response::HeaderStyle,
};
use ratelimit_core::{Key, Limiter};

/// What a layer decides by, shared by all its services.
#[derive(Clone)]
pub struct Config<F: Framework> {
    /// Counts and decides.
    pub limiter: Limiter,
    /// Whether the preflight requests of CORS are counted.
    pub preflight: Preflight,
    /// What to do where no request has a client address.
    pub missing_client_help: &'static str,
    /// What only this adapter has.
    pub options: F::Options,
    pub(crate) policy: HttpPolicy,
    pub(crate) flags: PolicyFlags,
    pub(crate) key: Arc<KeyOf<F>>,
    pub(crate) named_keys: Vec<NamedKey<F>>,
    pub(crate) client_address: Arc<ClientAddressOf<F>>,
    pub(crate) tier: Option<Arc<TierOf<F>>>,
    pub(crate) cost: Option<Arc<CostOfRequest<F>>>,
    pub(crate) exempt: Option<Arc<IsExempt<F>>>,
    pub(crate) on_denied: Option<Arc<AnswerTo<F>>>,
    pub(crate) on_error: Option<Arc<AnswerTo<F>>>,
    pub(crate) headers: HeaderWriter<F>,
    pub(crate) logged_no_client: Arc<AtomicBool>,
    pub(crate) logged_unknown_key: Arc<AtomicBool>,
    mode: PolicyMode,
    named: Option<RegistryLookup<F>>,
}

pub(crate) type KeyOf<F> =
    dyn Fn(&<F as Framework>::Request) -> Result<Key, KeyError> + Send + Sync;
type CostOfRequest<F> = dyn Fn(&<F as Framework>::Request) -> u64 + Send + Sync;
type ClientAddressOf<F> =
    dyn Fn(&<F as Framework>::Request) -> Result<ClientAddress, KeyError> + Send + Sync;
type TierOf<F> = dyn Fn(&<F as Framework>::Request) -> Option<String> + Send + Sync;
type IsExempt<F> = dyn Fn(&<F as Framework>::Request) -> bool + Send + Sync;
pub(crate) type AnswerTo<F> = dyn Fn(&Rejection<'_, F>) -> <F as Framework>::Response + Send + Sync;

/// What becomes of the preflight requests of CORS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preflight {
    /// They pass uncounted.
    Passed,
    /// They are limited as all others.
    Counted,
}

/// Whether the policy is applied as it is, or only watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PolicyMode {
    AsItIs,
    Shadow,
}

impl PolicyMode {
    fn of(self, policy: HttpPolicy) -> HttpPolicy {
        match self {
            PolicyMode::AsItIs => policy,
            PolicyMode::Shadow => policy.shadow(),
        }
    }
}

/// Where the policy is looked up, and the settings under the one that was found last.
struct RegistryLookup<F: Framework> {
    registry: Registry,
    latest: RwLock<Option<(u64, Arc<Config<F>>)>>,
}

impl<F: Framework> RegistryLookup<F> {
    const fn new(registry: Registry) -> RegistryLookup<F> {
        RegistryLookup {
            registry,
            latest: RwLock::new(None),
        }
    }
}

impl<F: Framework> Clone for RegistryLookup<F> {
    /// What was found last belongs to the settings it was made of, so a clone looks for itself.
    fn clone(&self) -> RegistryLookup<F> {
        RegistryLookup::new(self.registry.clone())
    }
}

impl<F: Framework> Config<F> {
    /// Limits the requests of each `key` by `policy`.
    pub fn new(
        limiter: Limiter,
        policy: HttpPolicy,
        key: impl Fn(&F::Request) -> Result<Key, KeyError> + Send + Sync + 'static,
    ) -> Config<F> {
        let headers = HeaderWriter::new(HeaderStyle::default(), policy.policy());
        let client = ClientKey::new();
        Config {
            limiter,
            preflight: Preflight::Passed,
            missing_client_help: F::MISSING_CLIENT_HELP,
            options: F::Options::default(),
            flags: PolicyFlags::of(&policy),
            policy,
            key: Arc::new(key),
            named_keys: Vec::new(),
            client_address: Arc::new(move |request| client.client_address(&F::head(request))),
            tier: None,
            cost: None,
            exempt: None,
            on_denied: None,
            on_error: None,
            headers,
            logged_no_client: Arc::default(),
            logged_unknown_key: Arc::default(),
            mode: PolicyMode::AsItIs,
            named: None,
        }
    }

    /// Limits by the policy of that name, as it is when a request comes.
    ///
    /// # Errors
    ///
    /// When there is no policy of that name.
    pub fn by_name(
        limiter: Limiter,
        registry: &Registry,
        name: &str,
        key: impl Fn(&F::Request) -> Result<Key, KeyError> + Send + Sync + 'static,
    ) -> Result<Config<F>, UnknownPolicy> {
        let named = RegistryLookup::new(registry.clone());
        let policy = registry.get(name);
        let policy = policy.ok_or_else(|| UnknownPolicy::new(name, registry))?;
        Ok(Config {
            named: Some(named),
            ..Config::new(limiter, policy, key)
        })
    }

    /// The policy that is applied.
    pub const fn policy(&self) -> &HttpPolicy {
        &self.policy
    }

    /// Whose budget is spent.
    pub fn key_by(
        &mut self,
        key: impl Fn(&F::Request) -> Result<Key, KeyError> + Send + Sync + 'static,
    ) {
        self.key = Arc::new(key);
    }

    /// Where a client is, for rules about addresses and limits by `ip`; the peer's address where this
    /// knows none.
    pub fn client_address_by(
        &mut self,
        find: impl Fn(&F::Request) -> Option<Result<ClientAddress, KeyError>> + Send + Sync + 'static,
    ) {
        let client = ClientKey::new();
        self.client_address = Arc::new(move |request| {
            find(request).unwrap_or_else(|| client.client_address(&F::head(request)))
        });
    }

    /// In which tier a request is; where it names none, the policy says so by the key.
    pub fn tier(&mut self, tier: impl Fn(&F::Request) -> Option<String> + Send + Sync + 'static) {
        self.tier = Some(Arc::new(tier));
    }

    /// How much a request costs, what the policy says unless set.
    pub fn cost(&mut self, cost: impl Fn(&F::Request) -> u64 + Send + Sync + 'static) {
        self.cost = Some(Arc::new(cost));
    }

    /// Which requests pass uncounted and untold.
    pub fn exempt_when(&mut self, exempt: impl Fn(&F::Request) -> bool + Send + Sync + 'static) {
        self.exempt = Some(Arc::new(exempt));
    }

    /// In which fields a response tells what is left.
    pub fn headers(&mut self, style: HeaderStyle) {
        self.headers = self.headers.with_style(style, self.policy.policy());
    }

    /// Lets scripts of other origins read the fields.
    pub fn expose_headers(&mut self) {
        self.headers = self.headers.clone().with_exposed();
    }

    /// Marks responses to requests that passed beyond a limit, or would not have.
    pub fn mark_responses(&mut self) {
        self.headers = self.headers.clone().with_marks();
    }

    /// Decides and counts by a policy that only watches.
    pub fn shadow(&mut self) {
        self.mode = PolicyMode::Shadow;
        self.policy = self.mode.of(self.policy.clone());
    }

    /// Makes the answer to a request over the limit.
    pub fn on_denied(
        &mut self,
        response: impl Fn(&Rejection<'_, F>) -> F::Response + Send + Sync + 'static,
    ) {
        self.on_denied = Some(Arc::new(response));
    }

    /// Makes the answer to a request that could not be decided.
    pub fn on_error(
        &mut self,
        response: impl Fn(&Rejection<'_, F>) -> F::Response + Send + Sync + 'static,
    ) {
        self.on_error = Some(Arc::new(response));
    }

    /// These settings; under a name, with the policy as the registry has it now.
    #[inline]
    pub fn current(self: &Arc<Self>) -> Arc<Config<F>> {
        match &self.named {
            Some(named) => self.look_up(named),
            None => Arc::clone(self),
        }
    }

    fn look_up(&self, named: &RegistryLookup<F>) -> Arc<Config<F>> {
        let version = named.registry.version();
        let latest = named.latest.read().unwrap_or_else(PoisonError::into_inner);
        let last = match &*latest {
            Some((seen, config)) if *seen == version => return Arc::clone(config),
            Some((_, config)) => config.policy.clone(),
            None => self.policy.clone(),
        };
        drop(latest);
        let policy = named.registry.get(self.policy.name());
        let config = Arc::new(self.with_policy(policy.unwrap_or(last)));
        let mut latest = named.latest.write().unwrap_or_else(PoisonError::into_inner);
        *latest = Some((version, Arc::clone(&config)));
        config
    }

    fn with_policy(&self, policy: HttpPolicy) -> Config<F> {
        let policy = self.mode.of(policy);
        Config {
            headers: self.headers.with_policy(policy.policy()),
            flags: PolicyFlags::of(&policy),
            policy,
            named: None,
            ..self.clone()
        }
    }
}

impl<F: Framework> fmt::Debug for Config<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("limiter", &self.limiter)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

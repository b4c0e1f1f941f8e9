//! What a layer decides by, shared by all its services.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock, atomic::AtomicBool},
};

use crate::adapter::{
    client_key::ClientKey,
    framework::Framework,
    key_names::{NamedKey, Whereabouts},
    limit_fields::LimitFields,
    no_key::NoKey,
    rejection::Rejection,
    terms::Terms,
};
use crate::{
    fields::HeaderStyle,
    key::Key,
    limiter::Limiter,
    policy::Policy,
    registry::{Registry, UnknownPolicy},
};

/// What a layer decides by, shared by all its services.
#[derive(Clone)]
pub struct Settings<F: Framework> {
    /// Counts and decides.
    pub limiter: Limiter,
    /// Whether the preflight requests of CORS are counted.
    pub preflight: Preflight,
    /// What to do where no request has a client address.
    pub advice: &'static str,
    /// What only this adapter has.
    pub own: F::Own,
    pub(super) policy: Policy,
    pub(super) terms: Terms,
    pub(super) key: Arc<KeyOf<F>>,
    pub(super) named_keys: Vec<NamedKey<F>>,
    pub(super) whereabouts: Arc<WhereaboutsOf<F>>,
    pub(super) tier: Option<Arc<TierOf<F>>>,
    pub(super) cost: Option<Arc<CostOf<F>>>,
    pub(super) exempt: Option<Arc<IsExempt<F>>>,
    pub(super) on_denied: Option<Arc<AnswerTo<F>>>,
    pub(super) on_failed: Option<Arc<AnswerTo<F>>>,
    pub(super) fields: LimitFields<F>,
    pub(super) told_no_client: Arc<AtomicBool>,
    pub(super) told_unknown_key: Arc<AtomicBool>,
    mode: Mode,
    named: Option<Named<F>>,
}

pub(super) type KeyOf<F> = dyn Fn(&<F as Framework>::Request) -> Result<Key, NoKey> + Send + Sync;
type CostOf<F> = dyn Fn(&<F as Framework>::Request) -> u64 + Send + Sync;
type WhereaboutsOf<F> =
    dyn Fn(&<F as Framework>::Request) -> Result<Whereabouts, NoKey> + Send + Sync;
type TierOf<F> = dyn Fn(&<F as Framework>::Request) -> Option<String> + Send + Sync;
type IsExempt<F> = dyn Fn(&<F as Framework>::Request) -> bool + Send + Sync;
pub(super) type AnswerTo<F> = dyn Fn(&Rejection<'_, F>) -> <F as Framework>::Answer + Send + Sync;

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
enum Mode {
    AsItIs,
    Shadow,
}

impl Mode {
    fn of(self, policy: Policy) -> Policy {
        match self {
            Mode::AsItIs => policy,
            Mode::Shadow => policy.shadow(),
        }
    }
}

/// Where the policy is looked up, and the settings under the one that was found last.
struct Named<F: Framework> {
    registry: Registry,
    latest: RwLock<Option<(u64, Arc<Settings<F>>)>>,
}

impl<F: Framework> Named<F> {
    const fn new(registry: Registry) -> Named<F> {
        Named {
            registry,
            latest: RwLock::new(None),
        }
    }
}

impl<F: Framework> Clone for Named<F> {
    /// What was found last belongs to the settings it was made of, so a clone looks for itself.
    fn clone(&self) -> Named<F> {
        Named::new(self.registry.clone())
    }
}

impl<F: Framework> Settings<F> {
    /// Limits the requests of each `key` by `policy`.
    pub fn new(
        limiter: Limiter,
        policy: Policy,
        key: impl Fn(&F::Request) -> Result<Key, NoKey> + Send + Sync + 'static,
    ) -> Settings<F> {
        let fields = LimitFields::new(HeaderStyle::default(), &policy);
        let client = ClientKey::new();
        Settings {
            limiter,
            preflight: Preflight::Passed,
            advice: F::ADVICE,
            own: F::Own::default(),
            terms: Terms::of(&policy),
            policy,
            key: Arc::new(key),
            named_keys: Vec::new(),
            whereabouts: Arc::new(move |request| client.whereabouts(&F::head(request))),
            tier: None,
            cost: None,
            exempt: None,
            on_denied: None,
            on_failed: None,
            fields,
            told_no_client: Arc::default(),
            told_unknown_key: Arc::default(),
            mode: Mode::AsItIs,
            named: None,
        }
    }

    /// Limits by the policy of that name, as it is when a request comes.
    ///
    /// # Errors
    ///
    /// When there is no policy of that name.
    pub fn named(
        limiter: Limiter,
        registry: &Registry,
        name: &str,
        key: impl Fn(&F::Request) -> Result<Key, NoKey> + Send + Sync + 'static,
    ) -> Result<Settings<F>, UnknownPolicy> {
        let named = Named::new(registry.clone());
        let policy = registry.get(name);
        let policy = policy.ok_or_else(|| UnknownPolicy::new(name, registry))?;
        Ok(Settings {
            named: Some(named),
            ..Settings::new(limiter, policy, key)
        })
    }

    /// The policy that is applied.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whose budget is spent.
    pub fn key_by(
        &mut self,
        key: impl Fn(&F::Request) -> Result<Key, NoKey> + Send + Sync + 'static,
    ) {
        self.key = Arc::new(key);
    }

    /// Where a client is, for rules about addresses and limits by `ip`; the peer's address where this
    /// knows none.
    pub fn whereabouts_by(
        &mut self,
        find: impl Fn(&F::Request) -> Option<Result<Whereabouts, NoKey>> + Send + Sync + 'static,
    ) {
        let client = ClientKey::new();
        self.whereabouts = Arc::new(move |request| {
            find(request).unwrap_or_else(|| client.whereabouts(&F::head(request)))
        });
    }

    /// In which tier a request is; where it names none, the policy says so by the key.
    pub fn tier_by_request(
        &mut self,
        tier: impl Fn(&F::Request) -> Option<String> + Send + Sync + 'static,
    ) {
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
        self.fields = self.fields.styled(style, &self.policy);
    }

    /// Lets scripts of other origins read the fields.
    pub fn expose_headers(&mut self) {
        self.fields = self.fields.clone().exposed();
    }

    /// Marks responses to requests that passed beyond a limit, or would not have.
    pub fn marks(&mut self) {
        self.fields = self.fields.clone().marked();
    }

    /// Decides and counts by a policy that only watches.
    pub fn shadow(&mut self) {
        self.mode = Mode::Shadow;
        self.policy = self.mode.of(self.policy.clone());
    }

    /// Makes the answer to a request over the limit.
    pub fn on_denied(
        &mut self,
        answer: impl Fn(&Rejection<'_, F>) -> F::Answer + Send + Sync + 'static,
    ) {
        self.on_denied = Some(Arc::new(answer));
    }

    /// Makes the answer to a request that could not be decided.
    pub fn on_failed(
        &mut self,
        answer: impl Fn(&Rejection<'_, F>) -> F::Answer + Send + Sync + 'static,
    ) {
        self.on_failed = Some(Arc::new(answer));
    }

    /// These settings; under a name, with the policy as the registry has it now.
    #[inline]
    pub fn current(self: &Arc<Self>) -> Arc<Settings<F>> {
        match &self.named {
            Some(named) => self.looked_up(named),
            None => Arc::clone(self),
        }
    }

    fn looked_up(&self, named: &Named<F>) -> Arc<Settings<F>> {
        let version = named.registry.version();
        let latest = named.latest.read().unwrap_or_else(PoisonError::into_inner);
        let last = match &*latest {
            Some((seen, settings)) if *seen == version => return Arc::clone(settings),
            Some((_, settings)) => settings.policy.clone(),
            None => self.policy.clone(),
        };
        drop(latest);
        let policy = named.registry.get(self.policy.name());
        let settings = Arc::new(self.under(policy.unwrap_or(last)));
        let mut latest = named.latest.write().unwrap_or_else(PoisonError::into_inner);
        *latest = Some((version, Arc::clone(&settings)));
        settings
    }

    fn under(&self, policy: Policy) -> Settings<F> {
        let policy = self.mode.of(policy);
        Settings {
            fields: self.fields.under(&policy),
            terms: Terms::of(&policy),
            policy,
            named: None,
            ..self.clone()
        }
    }
}

impl<F: Framework> fmt::Debug for Settings<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("limiter", &self.limiter)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

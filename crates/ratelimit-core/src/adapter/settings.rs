//! What a layer decides by, shared by all its services.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock, atomic::AtomicBool},
};

use super::{framework::Framework, limit_fields::LimitFields, no_key::NoKey, rejection::Rejection};
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
    /// Whether denials are enforced.
    pub mode: Mode,
    /// What to do where no request has a client address.
    pub advice: &'static str,
    /// What only this adapter has.
    pub own: F::Own,
    pub(super) policy: Policy,
    pub(super) key: Arc<KeyOf<F>>,
    pub(super) cost: Option<Arc<CostOf<F>>>,
    pub(super) exempt: Option<Arc<IsExempt<F>>>,
    pub(super) on_denied: Option<Arc<AnswerTo<F>>>,
    pub(super) on_failed: Option<Arc<AnswerTo<F>>>,
    pub(super) fields: LimitFields<F>,
    pub(super) told_no_client: Arc<AtomicBool>,
    named: Option<Named<F>>,
}

type KeyOf<F> = dyn Fn(&<F as Framework>::Request) -> Result<Key, NoKey> + Send + Sync;
type CostOf<F> = dyn Fn(&<F as Framework>::Request) -> u64 + Send + Sync;
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

/// Whether denials are enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// What is denied does not reach the service.
    Enforced,
    /// All is decided and counted, nothing denied, and nothing told.
    Shadow,
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
        Settings {
            limiter,
            preflight: Preflight::Passed,
            mode: Mode::Enforced,
            advice: F::ADVICE,
            own: F::Own::default(),
            policy,
            key: Arc::new(key),
            cost: None,
            exempt: None,
            on_denied: None,
            on_failed: None,
            fields,
            told_no_client: Arc::default(),
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

    /// How much a request costs, 1 unless set.
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

    /// The same settings with the policy as the registry has it now, where that is another.
    pub fn refreshed(&self) -> Option<Arc<Settings<F>>> {
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

    fn under(&self, policy: Policy) -> Settings<F> {
        Settings {
            fields: self.fields.under(&policy),
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

//! All policies of the server: built-in ones, configured ones and those of Envoy rules.

#[cfg(feature = "envoy")]
use ratelimit_core::Throttle;
use ratelimit_core::{FailureMode, Policy};
#[cfg(feature = "envoy")]
use ratelimit_envoy::{ListedRule, Role, Rules as EnvoyRules};
use ratelimit_http::policy::HttpPolicy;

use crate::{app::App, config::ReloadableConfig};

/// A policy, and where it comes from.
#[derive(Clone, Copy)]
pub(super) struct CatalogEntry<'a> {
    pub(super) policy: &'a Policy,
    pub(super) origin: Origin<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum Origin<'a> {
    BuiltIn(&'a HttpPolicy),
    Configured(&'a HttpPolicy),
    /// A rule, and whether every request of Envoy passes.
    #[cfg(feature = "envoy")]
    Envoy(ListedRule<'a>, bool),
}

impl<'a> CatalogEntry<'a> {
    pub(super) fn configured(rules: &ReloadableConfig, policy: &'a HttpPolicy) -> CatalogEntry<'a> {
        let is_built_in = rules.policies.is_built_in(policy.name());
        CatalogEntry {
            policy: policy.policy(),
            origin: if is_built_in {
                Origin::BuiltIn(policy)
            } else {
                Origin::Configured(policy)
            },
        }
    }

    pub(super) fn name(&self) -> &'a str {
        self.policy.name()
    }

    /// The terms for HTTP requests. Those of an Envoy rule have no effect.
    pub(super) const fn http(&self) -> Option<&'a HttpPolicy> {
        match self.origin {
            Origin::BuiltIn(policy) | Origin::Configured(policy) => Some(policy),
            #[cfg(feature = "envoy")]
            Origin::Envoy(..) => None,
        }
    }

    pub(super) const fn is_built_in(&self) -> bool {
        matches!(self.origin, Origin::BuiltIn(_))
    }

    /// The share of keys for which denials apply, in percent.
    pub(super) fn enforced_percent(&self) -> u8 {
        match self.origin {
            #[cfg(feature = "envoy")]
            Origin::Envoy(rule, is_shadow) if is_shadow || rule.role == Role::Watch => 0,
            _ => self.policy.enforcement_percent(),
        }
    }

    pub(super) fn throttle(&self) -> String {
        match self.origin {
            #[cfg(feature = "envoy")]
            Origin::Envoy(rule, _) if rule.is_window => Throttle::Hard.to_string(),
            _ => self.policy.throttle().to_string(),
        }
    }

    pub(super) fn failure_mode(&self, app: &App) -> FailureMode {
        app.limiter().failure_mode_of(self.policy)
    }
}

/// All policies, ordered by name. A policy of the configuration hides an Envoy rule that names it.
pub(super) fn catalog<'a>(
    rules: &'a ReloadableConfig,
    envoy: &'a EnvoySnapshot,
) -> Vec<CatalogEntry<'a>> {
    let configured = rules.policies.iter_http();
    let configured = configured.map(|policy| CatalogEntry::configured(rules, policy));
    let mut entries: Vec<CatalogEntry<'a>> = configured.collect();
    let before = entries.len();
    entries.extend(envoy.entries());
    if entries.len() > before {
        // A stable sort: of equal names the configured one is first.
        entries.sort_by(|one, other| one.name().cmp(other.name()));
        entries.dedup_by(|one, other| one.name() == other.name());
    }
    entries
}

/// The Envoy rules of one moment; none if the server has no listener for Envoy.
pub(super) struct EnvoySnapshot {
    #[cfg(feature = "envoy")]
    rules: Option<std::sync::Arc<EnvoyRules>>,
    /// Whether every request of Envoy passes.
    #[cfg(feature = "envoy")]
    is_shadow: bool,
}

impl EnvoySnapshot {
    #[cfg(feature = "envoy")]
    pub(super) fn new(app: &App) -> EnvoySnapshot {
        let state = app.config_state();
        EnvoySnapshot {
            rules: state.envoy_rules(),
            is_shadow: state.is_envoy_shadow,
        }
    }

    #[cfg(feature = "envoy")]
    fn entries(&self) -> impl Iterator<Item = CatalogEntry<'_>> {
        let listed = self.rules.iter().flat_map(|rules| rules.listed());
        listed.map(|rule| CatalogEntry {
            policy: rule.policy,
            origin: Origin::Envoy(rule, self.is_shadow),
        })
    }

    #[cfg(not(feature = "envoy"))]
    pub(super) fn new(_: &App) -> EnvoySnapshot {
        EnvoySnapshot {}
    }

    #[cfg(not(feature = "envoy"))]
    #[expect(clippy::unused_self, reason = "with the feature it has rules")]
    fn entries(&self) -> impl Iterator<Item = CatalogEntry<'_>> {
        std::iter::empty()
    }
}

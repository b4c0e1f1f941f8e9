//! Policies of Envoy rules, for calls of operators.

#[cfg(feature = "envoy")]
use ratelimit_core::Throttle;
use ratelimit_core::{Key, Policy};

use crate::{api_error::ApiError, app::App, check_keys::named_key};

/// The policy of an Envoy rule, by the name that metrics and offenders show.
pub(crate) struct EnvoyPolicy {
    pub(crate) policy: Policy,
    /// Whether it is the window of a rate, whose keys are made of all entries of a descriptor.
    is_window: bool,
}

impl EnvoyPolicy {
    /// The policy of the first rule with that name, as a check without the room for usage reports.
    #[cfg(feature = "envoy")]
    pub(crate) fn find(app: &App, name: &str) -> Option<EnvoyPolicy> {
        let rules = app.config_state().envoy_rules()?;
        let mut listed = rules.listed().into_iter();
        let rule = listed.find(|rule| rule.policy.name() == name)?;
        let policy = if rule.is_window {
            rule.policy.with_throttle(Throttle::Hard).ok()?
        } else {
            rule.policy.clone()
        };
        Some(EnvoyPolicy {
            policy,
            is_window: rule.is_window,
        })
    }

    #[cfg(not(feature = "envoy"))]
    pub(crate) fn find(_: &App, _: &str) -> Option<EnvoyPolicy> {
        None
    }

    /// The key that offenders shows as `text`.
    pub(crate) fn key(&self, text: &str) -> Result<Key, ApiError> {
        // The keys of rules begin with the key of an entry, or with its absence.
        let of_entries = Key::from_printed(text).ok();
        let of_entries = of_entries.filter(|key| key.kind().contains('/') || self.is_window);
        let begins = |start: &str| text.starts_with(start);
        match of_entries {
            Some(key) if begins("k:") || begins("empty:") || begins("sha256~") => Ok(key),
            _ if self.is_window => Err(ApiError::bad_request(
                "the key of an Envoy rule is written as offenders shows it, such as k:user/v:alice",
            )),
            _ => named_key(text),
        }
    }
}

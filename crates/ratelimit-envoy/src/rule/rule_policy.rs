//! The budgets of a rule with any policy.

use std::collections::BTreeSet;

use ratelimit_core::{Algorithm, Key, KeySet, Limit, Policy};
use ratelimit_http::{
    key::is_credential,
    policy::HttpPolicy,
    policy_file::{DiagnosticCode, Diagnostics},
};

use crate::{
    charge::Charge,
    config::EntryConfig,
    proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry,
    rule::{
        tree::budget_key,
        window::{MAX_HEADROOM, soften},
    },
};

/// The name in `by global`: one budget for all requests.
const GLOBAL: &str = "global";

/// The headroom for readings under a `sliding_window_log`, which stores each unit: as much as the limit itself.
const LOG_HEADROOM: u32 = 100;

/// A policy, and the entries of a descriptor that its limits count by.
///
/// - A limit `by NAME` counts by the entry of that key.
/// - The value of an entry whose key is the name of a [credential](is_credential) is hashed.
/// - The other limits count by the entries without a fixed value that no limit counts by. One such entry is the plain
///   key of its value, as in other calls of this project. Several are joined.
/// - If all entries without a fixed value are named by a limit, they are the key; without any, all entries are.
#[derive(Debug)]
pub(crate) struct RulePolicy {
    pub(crate) charge: Policy,
    /// The policy with headroom, in which readings beyond the limit are recorded.
    pub(crate) reading: Policy,
    /// The headroom in percent.
    headroom: u32,
    /// The entries of the key, at least one.
    key: Vec<usize>,
    /// The entry of each name in `by NAME`; `None` for `global`.
    named: Vec<(String, Option<usize>)>,
}

impl RulePolicy {
    /// The budgets of a policy for descriptors of these entries. `line` is that of the mistakes.
    pub(crate) fn new(
        policy: &HttpPolicy,
        entries: &[EntryConfig],
        line: usize,
        diagnostics: &mut Diagnostics,
    ) -> RulePolicy {
        report_ignored(policy, line, diagnostics);
        let charge = policy.policy().clone();
        report_unusable(&charge, line, diagnostics);
        let by: BTreeSet<&str> = with_tiers(&charge).flat_map(Policy::key_names).collect();
        let named = by.into_iter().filter_map(|name| {
            let entry = named_entry(name, entries);
            let reject = |message| diagnostics.add(DiagnosticCode::BadLimit, line, message);
            entry
                .map_err(reject)
                .ok()
                .map(|index| (name.to_owned(), index))
        });
        let named: Vec<(String, Option<usize>)> = named.collect();
        let key = key_entries(entries, &named);
        report_unmatched_tenants(&charge, &key, entries, line, diagnostics);
        let is_log = |limit: &Limit| limit.algorithm() == Algorithm::SlidingWindowLog;
        let has_log = with_tiers(&charge).any(|tier| tier.limits().iter().any(is_log));
        let max_headroom = if has_log { LOG_HEADROOM } else { MAX_HEADROOM };
        let (reading, headroom) = soften(&charge, max_headroom);
        RulePolicy {
            charge,
            reading,
            headroom,
            key,
            named,
        }
    }

    /// The keys of a descriptor that the rule matches.
    pub(crate) fn keys(&self, entries: &[Entry]) -> KeySet {
        let own: Vec<Entry> = self
            .key
            .iter()
            .filter_map(|index| entries.get(*index).cloned())
            .collect();
        let key = match &*own {
            [entry] if is_credential(&entry.key) => Key::hashed("key", &entry.value).ok(),
            [entry] => Key::new(&entry.value).ok(),
            several => budget_key(several, &[]),
        };
        let keys = KeySet::new(key.unwrap_or_else(|| empty_key("value")));
        self.named.iter().fold(keys, |keys, (name, index)| {
            let entry = index.and_then(|index| entries.get(index));
            let value = entry.map_or(&b"all"[..], |entry| &entry.value);
            keys.with(name, named_key(name, value))
        })
    }

    /// The policy that is charged for a cost, and the cost that it records.
    ///
    /// The largest reading that is recorded in full is the headroom of the smallest limit of the key's tier: any such
    /// reading fits until a limit is exceeded.
    pub(crate) fn charged(&self, charge: Charge, key: &Key) -> (&Policy, Charge) {
        let Charge::Reading(units) = charge else {
            return (&self.charge, charge);
        };
        let limits = self.charge.for_key(key).limits().iter();
        let capacities = limits.filter(|limit| limit.counts_units());
        let smallest = capacities.map(Limit::capacity).min().unwrap_or(1);
        let headroom = u128::from(smallest) * u128::from(self.headroom) / 100;
        let max_reading = u64::try_from(headroom).unwrap_or(u64::MAX).max(smallest);
        (&self.reading, Charge::Reading(units.min(max_reading)))
    }
}

/// The policy and its tiers.
pub(super) fn with_tiers(policy: &Policy) -> impl Iterator<Item = &Policy> {
    std::iter::once(policy).chain(policy.tiers().map(|(_, tier)| tier))
}

/// The entry that `by NAME` counts by; `None` for `by global`.
fn named_entry(name: &str, entries: &[EntryConfig]) -> Result<Option<usize>, String> {
    if name == GLOBAL {
        return Ok(None);
    }
    // The keys of these names are made of requests, which Envoy does not send.
    if name == "ip" || name.starts_with("header:") {
        return Err(format!(
            "a limit counts by {name}, which Envoy does not send: expected by KEY with the key of an entry, such as \
             remote_address"
        ));
    }
    let mut found = entries.iter().enumerate();
    let mut found = found.by_ref().filter(|(_, entry)| entry.key == name);
    match (found.next(), found.next()) {
        (Some((index, _)), None) => Ok(Some(index)),
        (Some(_), Some(_)) => Err(format!(
            "a limit counts by {name}, and several entries of match have that key"
        )),
        (None, _) => Err(format!(
            "a limit counts by {name}, and no entry of match has that key"
        )),
    }
}

/// The entries that limits without `by` count by.
fn key_entries(entries: &[EntryConfig], named: &[(String, Option<usize>)]) -> Vec<usize> {
    let is_fixed = |index: &usize| {
        let value = &entries[*index].value;
        !value.is_empty() && !value.contains('*')
    };
    let is_named = |index: &usize| named.iter().any(|(_, named)| *named == Some(*index));
    let all = 0..entries.len();
    let free: Vec<usize> = all.clone().filter(|index| !is_fixed(index)).collect();
    let own: Vec<usize> = free.iter().copied().filter(|i| !is_named(i)).collect();
    [own, free, all.collect()]
        .into_iter()
        .find(|indices| !indices.is_empty())
        .unwrap_or_default()
}

/// The key of a limit `by NAME`. It is the key that other calls give under this name.
fn named_key(name: &str, value: &[u8]) -> Key {
    let make = |tag: &str, value: &[u8]| {
        if is_credential(name) {
            Key::hashed(tag, value)
        } else {
            Key::tagged(tag, value)
        }
    };
    let key = make(name, value).or_else(|_| {
        // A name may have letters that a tag cannot have.
        let text = [name.as_bytes(), b":", value].concat();
        make("named", &text)
    });
    match key {
        Ok(key) if !value.is_empty() => key,
        _ => empty_key(name),
    }
}

/// The key of an entry with an empty value, which no other value has.
fn empty_key(name: &str) -> Key {
    Key::tagged("empty", name).expect("the tag and the name are not empty")
}

/// Reports limits that cannot hold for requests of Envoy.
fn report_unusable(policy: &Policy, line: usize, diagnostics: &mut Diagnostics) {
    let limits = || with_tiers(policy).flat_map(Policy::limits);
    let delays = |limit: &Limit| matches!(limit, Limit::LeakyBucket(leaky) if !leaky.is_policing());
    for (is_unusable, reason) in [
        (
            limits().any(delays),
            "a leaky_bucket delays requests, which Envoy cannot do: add police to the limit",
        ),
        (
            limits().any(|limit| limit.algorithm() == Algorithm::Concurrency),
            "calls of Envoy take slots of a concurrency limit and release none, so each is held for its lease: use a rate, \
             and max_requests of Envoy's circuit_breakers or a layer of the application for concurrency",
        ),
    ] {
        if is_unusable {
            diagnostics.add(DiagnosticCode::BadLimit, line, reason);
        }
    }
}

/// Reports parts of a policy without effect on requests of Envoy.
fn report_ignored(policy: &HttpPolicy, line: usize, diagnostics: &mut Diagnostics) {
    for (is_ignored, reason) in [
        (
            policy.has_rules(),
            "exempt and blocked of the policy have no effect on requests of Envoy",
        ),
        (
            policy.policy().prefetch().is_some(),
            "prefetch of the policy has no effect on requests of Envoy",
        ),
    ] {
        if is_ignored {
            diagnostics.add(DiagnosticCode::IgnoredField, line, reason);
        }
    }
}

/// Reports tenants of a rule whose key is made of several entries, or of a hashed one.
fn report_unmatched_tenants(
    policy: &Policy,
    key: &[usize],
    entries: &[EntryConfig],
    line: usize,
    diagnostics: &mut Diagnostics,
) {
    let mut tenants = policy.tier_members();
    let message = match key {
        [index] if is_credential(&entries[*index].key) => {
            let is_plain = |tenant: &Key| !tenant.as_str().starts_with("sha256~");
            let key = &entries[*index].key;
            tenants.any(is_plain).then(|| {
                format!(
                    "the values of {key} are hashed, because the name is that of a credential: write a tenant as \
                     secret:key:VALUE"
                )
            })
        }
        [_] => None,
        _ => tenants.next().map(|_| {
            "no tenant has a key of several entries: give all but one a fixed value, or a limit by it".to_owned()
        }),
    };
    if let Some(message) = message {
        diagnostics.add(DiagnosticCode::UnmatchedKey, line, message);
    }
}

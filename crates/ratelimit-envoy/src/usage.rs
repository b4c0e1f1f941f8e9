//! The hits of descriptors as Envoy's rate limit server counts them.

use std::{borrow::Cow, str::FromStr};

use ratelimit_core::Verdict;
use ratelimit_http::key::is_credential;

use crate::{
    charge::Charge,
    member::Member,
    proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry,
    request::{Resolution, ResolvedRequest},
    rule::{Role, RuleNode},
};

/// The first label of a limit that a request brings along and no rule matches.
const OVERRIDE: &str = "override";

/// The longest label with a value of a request, in bytes. A client chooses the value, and a metric keeps it.
const MAX_VALUED_LABEL_BYTES: usize = 200;
/// The end of a label that was cut off.
const CUT: &str = "...";

/// The share of a limit from which on hits are near it, from 0 to 1. The default is 0.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearLimitRatio {
    millionths: u32,
}

impl NearLimitRatio {
    const ONE: u32 = 1_000_000;

    /// The number of hits of a limit that are not near it, rounded down.
    fn threshold(self, limit: u64) -> u64 {
        let product = u128::from(limit) * u128::from(self.millionths);
        // The ratio is at most 1, so the result is at most the limit.
        u64::try_from(product / u128::from(NearLimitRatio::ONE)).unwrap_or(limit)
    }
}

impl Default for NearLimitRatio {
    fn default() -> NearLimitRatio {
        NearLimitRatio {
            millionths: 800_000,
        }
    }
}

impl FromStr for NearLimitRatio {
    type Err = String;

    /// Parses a decimal number such as `0.8` or `.8`. Digits beyond the sixth of the fraction are cut off.
    fn from_str(text: &str) -> Result<NearLimitRatio, String> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        let digits = fraction.chars().chain("000000".chars()).take(6);
        let millionths = format!("{whole}{}", digits.collect::<String>());
        let millionths = millionths.parse().ok().filter(|millionths| {
            let has_digits = !(whole.is_empty() && fraction.is_empty());
            let is_decimal = has_digits && is_number(whole) && is_number(fraction);
            is_decimal && *millionths <= NearLimitRatio::ONE
        });
        millionths
            .map(|millionths| NearLimitRatio { millionths })
            .ok_or_else(|| format!("expected a number from 0 to 1 such as 0.8, not {text:?}"))
    }
}

/// Hits of one descriptor by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HitCounts {
    /// All hits.
    pub total: u64,
    /// Hits beyond the limit.
    pub over_limit: u64,
    /// Hits within the limit that are beyond its [`NearLimitRatio`].
    pub near_limit: u64,
    /// Hits of descriptors that are not over their limit.
    pub within_limit: u64,
    /// Hits beyond the limit of a rule in shadow mode.
    pub shadow_mode: u64,
}

impl HitCounts {
    /// The counts of `hits` after `before` hits were recorded under a limit.
    fn new(before: u64, hits: u64, limit: u64, ratio: NearLimitRatio) -> HitCounts {
        let (near, after) = (ratio.threshold(limit), before.saturating_add(hits));
        let over_limit = after.saturating_sub(before.max(limit));
        HitCounts {
            total: hits,
            over_limit,
            near_limit: after.min(limit).saturating_sub(before.max(near)),
            within_limit: if over_limit == 0 { hits } else { 0 },
            shadow_mode: 0,
        }
    }

    fn in_shadow(mut self, is_shadow: bool) -> HitCounts {
        self.shadow_mode = if is_shadow { self.over_limit } else { 0 };
        self
    }
}

/// The hits of one descriptor, with the labels of its rule.
///
/// A label is `KEY` or `KEY_VALUE`, with the key and the value of the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DescriptorUsage<'r> {
    /// The first level of the rule.
    pub key1: Cow<'r, str>,
    /// The second level of the rule, if it has one. There are no labels of further levels.
    pub key2: Option<Cow<'r, str>>,
    /// Whether a label has a value of the request, because of `detailed_metric` or `value_to_metric`.
    pub has_values: bool,
    /// The hits.
    pub counts: HitCounts,
}

impl ResolvedRequest<'_> {
    /// The hits of each descriptor with a limit, for the verdicts of the [members](ResolvedRequest::members).
    ///
    /// - Descriptors without a limit and those that give units back are left out.
    /// - A request of several hits that is denied is charged nothing. Its hits are counted as if they had been added to those
    ///   before. A reading beyond its limit is over the limit as a whole.
    /// - A descriptor that the failure mode decided without a count has only [`total`](HitCounts::total).
    pub fn usages(
        &self,
        verdicts: &[Verdict],
        ratio: NearLimitRatio,
    ) -> impl Iterator<Item = DescriptorUsage<'_>> {
        let is_allowed = self.is_allowed(verdicts);
        self.resolutions
            .iter()
            .enumerate()
            .filter_map(move |(index, resolution)| {
                let (counts, has_rule) = match *resolution {
                    Resolution::Unmatched | Resolution::Unlimited(_) => return None,
                    Resolution::Blocked { rule, role, .. } => {
                        let charge = Charge::of(
                            &self.request.descriptors[index],
                            self.request.hits_addend,
                            1,
                        );
                        let counts = HitCounts::new(0, hits(charge)?, 0, ratio);
                        (counts.in_shadow(role == Role::Watch), rule.is_some())
                    }
                    Resolution::Limited { rule, member, .. } => {
                        let member = (&self.members()[member], verdicts.get(member)?);
                        (member_counts(member, is_allowed, ratio)?, rule.is_some())
                    }
                    Resolution::Policy { member, .. } => {
                        let member = (&self.members()[member], verdicts.get(member)?);
                        (member_counts(member, is_allowed, ratio)?, true)
                    }
                };
                Some(self.usage(index, has_rule, counts))
            })
    }

    fn usage(&self, index: usize, has_rule: bool, counts: HitCounts) -> DescriptorUsage<'_> {
        let (path, entries) = (&self.paths[index], &self.request.descriptors[index].entries);
        let is_detailed = path
            .last()
            .and_then(|node| node.rule.as_ref())
            .is_some_and(|rule| has_rule && rule.detailed_metric);
        let mut has_values = false;
        let mut levels = path.iter().zip(entries).map(|(node, entry)| {
            let is_valued = is_detailed || (has_rule && node.value_to_metric);
            let key = label(node, entry, is_valued);
            has_values |= matches!(key, Cow::Owned(_));
            key
        });
        let key1 = levels.next().unwrap_or(Cow::Borrowed(OVERRIDE));
        let key2 = levels.next();
        DescriptorUsage {
            key1,
            key2,
            has_values,
            counts,
        }
    }
}

/// The label of one level: that of the rule, or with the value of the entry. The value of a credential is never a label.
fn label<'r>(node: &'r RuleNode, entry: &Entry, is_valued: bool) -> Cow<'r, str> {
    let has_label = is_valued && node.shared_pattern.is_none() && !entry.value.is_empty();
    if !has_label || is_credential(&entry.key) {
        return Cow::Borrowed(&node.metric_key);
    }
    let key = String::from_utf8_lossy(&entry.key);
    let label = format!("{key}_{}", String::from_utf8_lossy(&entry.value));
    if label == node.metric_key {
        Cow::Borrowed(&node.metric_key)
    } else {
        Cow::Owned(shortened(label))
    }
}

/// A label of bounded length.
fn shortened(mut label: String) -> String {
    if label.len() > MAX_VALUED_LABEL_BYTES {
        let mut end = MAX_VALUED_LABEL_BYTES - CUT.len();
        while !label.is_char_boundary(end) {
            end -= 1;
        }
        label.truncate(end);
        label.push_str(CUT);
        label.shrink_to_fit();
    }
    label
}

/// The counts of a member; `None` if it gives units back.
fn member_counts(
    (member, verdict): (&Member, &Verdict),
    is_allowed: bool,
    ratio: NearLimitRatio,
) -> Option<HitCounts> {
    let hits = hits(member.charge)?;
    let Some(decision) = verdict.decision() else {
        return Some(HitCounts {
            total: hits,
            ..HitCounts::default()
        });
    };
    let is_over = member.is_over(verdict);
    let limit = decision.limit;
    let used = limit.saturating_sub(decision.remaining);
    let before = match member.charge {
        // The deny cache knows no numbers.
        _ if !decision.is_read() => {
            if is_over {
                limit
            } else {
                0
            }
        }
        Charge::Reading(_) if is_over => limit,
        _ if is_allowed && !is_over => used.saturating_sub(hits),
        _ => used,
    };
    let counts = HitCounts::new(before, hits, limit, ratio);
    Some(counts.in_shadow(is_over && member.role == Role::Watch))
}

/// The hits of a cost; `None` if units are given back.
fn hits(charge: Charge) -> Option<u64> {
    match charge {
        Charge::Request(hits) | Charge::Reading(hits) => Some(hits),
        Charge::Look => Some(0),
        Charge::Credit(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_counted_by_the_range_that_they_fall_into() {
        // Hits before, hits, limit; over, near and within.
        for ((before, hits, limit), expected) in [
            ((10, 1, 15), (0, 0, 1)),
            ((12, 1, 15), (0, 1, 1)),
            ((15, 1, 15), (1, 0, 0)),
            ((2, 3, 20), (0, 0, 3)),
            ((5, 2, 8), (0, 1, 2)),
            ((16, 3, 20), (0, 3, 3)),
            ((19, 3, 20), (2, 1, 0)),
            ((15, 7, 20), (2, 4, 0)),
            ((27, 3, 10), (3, 0, 0)),
            ((0, 1, 0), (1, 0, 0)),
            ((20, 0, 20), (0, 0, 0)),
        ] {
            let counts = HitCounts::new(before, hits, limit, NearLimitRatio::default());
            let found = (counts.over_limit, counts.near_limit, counts.within_limit);
            assert_eq!(found, expected, "{before} + {hits} of {limit}");
            assert_eq!(counts.total, hits);
        }
    }

    #[test]
    fn a_label_with_a_value_has_at_most_200_bytes() {
        for (label, expected) in [
            ("a".repeat(200), "a".repeat(200)),
            ("a".repeat(60_000), format!("{}...", "a".repeat(197))),
            (
                "\u{fffd}".repeat(100),
                format!("{}...", "\u{fffd}".repeat(65)),
            ),
        ] {
            assert_eq!(shortened(label), expected);
        }
    }

    #[test]
    fn a_ratio_is_from_0_to_1() {
        for text in ["0", "0.8", ".8", "1", "1.", "1.0", "0.123456789"] {
            assert!(text.parse::<NearLimitRatio>().is_ok(), "{text}");
        }
        for text in ["", ".", "-0.1", "1.1", "NaN", "80%", "0.x"] {
            assert!(text.parse::<NearLimitRatio>().is_err(), "{text}");
        }
        let ratio: NearLimitRatio = "0.5".parse().unwrap();
        assert_eq!(HitCounts::new(4, 2, 10, ratio).near_limit, 1);
    }
}

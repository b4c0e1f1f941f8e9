//! One line about a policy, for operators.

use std::fmt;

use ratelimit_core::{Policy, Throttle};

/// Maximum number of policies that the start screen and `/actuator/info` show.
pub(crate) const MAX_SHOWN_POLICIES: usize = 20;

const MAX_SHOWN_TIERS: usize = 5;

/// The limits of a policy, and in parentheses each setting that is not the default:
/// `token_bucket 10/s (cost 5, soft 10%, shadow, tier pro: token_bucket 100/s)`.
pub(crate) struct PolicySummary<'a>(pub(crate) &'a Policy);

impl PolicySummary<'_> {
    fn notes(&self) -> Vec<String> {
        let policy = self.0;
        let mut notes = Vec::new();
        if policy.cost().get() != 1 {
            notes.push(format!("cost {}", policy.cost()));
        }
        if !matches!(policy.throttle(), Throttle::Hard) {
            notes.push(policy.throttle().to_string());
        }
        match policy.enforcement_percent() {
            100 => {}
            0 => notes.push("shadow".to_owned()),
            percent => notes.push(format!("enforced for {percent}% of keys")),
        }
        if let Some(percent) = policy.prefetch() {
            notes.push(format!("prefetches {percent}%"));
        }
        if let Some(mode) = policy.failure_mode() {
            notes.push(format!("on failure {}", mode.as_str()));
        }
        let tiers = policy.tiers().take(MAX_SHOWN_TIERS);
        notes.extend(tiers.map(|(name, tier)| format!("tier {name}: {tier}")));
        let hidden = policy.tiers().skip(MAX_SHOWN_TIERS).count();
        if hidden > 0 {
            notes.push(format!("and {hidden} more tiers"));
        }
        notes
    }
}

impl fmt::Display for PolicySummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let notes = self.notes();
        if notes.is_empty() {
            return self.0.fmt(f);
        }
        write!(f, "{} ({})", self.0, notes.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    #[test]
    fn settings_besides_the_limits_are_in_the_summary() {
        let plain = Policy::parse("api", "10/s").unwrap();
        let rich = plain
            .with_cost(NonZeroU64::new(5).unwrap())
            .and_then(|policy| policy.with_throttle("soft 10%".parse().unwrap()))
            .and_then(|policy| policy.with_tier("pro", "100/s"))
            .unwrap()
            .shadow();

        assert_eq!(PolicySummary(&plain).to_string(), "token_bucket 10/s");
        assert_eq!(
            PolicySummary(&rich).to_string(),
            "token_bucket 10/s (cost 5, soft 10%, shadow, tier pro: token_bucket 100/s)"
        );
        let half = plain.with_enforcement(50).unwrap();
        assert_eq!(
            PolicySummary(&half).to_string(),
            "token_bucket 10/s (enforced for 50% of keys)"
        );
    }

    #[test]
    fn a_policy_with_many_tiers_has_a_short_summary() {
        let mut policy = Policy::parse("api", "10/s").unwrap();
        for place in 0..100 {
            policy = policy.with_tier(&format!("t{place}"), "20/s").unwrap();
        }

        let summary = PolicySummary(&policy).to_string();

        assert!(summary.ends_with(", and 95 more tiers)"), "{summary}");
        assert!(summary.len() < 250, "{summary}");
    }
}

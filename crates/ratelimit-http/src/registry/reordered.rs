//! Warnings about limits that move to another position when a policy changes.

use ratelimit_core::{Limit, Policy};

/// Logs one warning, with the code `limits-reordered`, if a limit of `before` is at another position
/// in `after` or one of its tiers.
///
/// A limit is identified by its position among the limits of its key. A limit that moves takes over the
/// state of the limit that was there: the state is converted if the algorithm is the same, and dropped
/// otherwise.
///
/// ```
/// use ratelimit_core::Policy;
/// use ratelimit_http::registry::log_reordered_limits;
///
/// let before = Policy::parse("api", "5/min; 20/h")?;
/// // `5/min` was first and is second now: this logs a warning. `5/min; 20/h; 1/s` would not.
/// log_reordered_limits(&before, &Policy::parse("api", "1/s; 5/min; 20/h")?);
/// # Ok::<(), ratelimit_core::InvalidPolicy>(())
/// ```
pub fn log_reordered_limits(before: &Policy, after: &Policy) {
    let Some(moved) = moved_limit(before, after) else {
        return;
    };
    tracing::warn!(
        policy = after.name(),
        limit = %moved,
        "limits-reordered: the limit has moved to another position of its policy; what was spent \
         under limits that moved starts fresh or is converted from another limit; add limits at \
         the end"
    );
}

/// A limit of the old policy that is at another position in the new one, in the same tier.
fn moved_limit(before: &Policy, after: &Policy) -> Option<Limit> {
    let tiers = before.tiers().filter_map(|(name, tier)| {
        let after = after.tiers().find(|(known, _)| *known == name)?;
        moved_in_tier(tier, after.1)
    });
    moved_in_tier(before, after).or_else(|| tiers.into_iter().next())
}

/// The first limit that is at another position of the same key.
fn moved_in_tier(before: &Policy, after: &Policy) -> Option<Limit> {
    before.limits_by_key().find_map(|(key, old)| {
        let (_, new) = after.limits_by_key().find(|(known, _)| *known == key)?;
        let mut old = old.into_iter().enumerate();
        old.find_map(|(index, limit)| {
            let has_moved = new.get(index) != Some(&limit) && new.contains(&limit);
            has_moved.then_some(limit)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Registry, test_log::Log};

    fn policy(limits: &str) -> Policy {
        Policy::parse("api", limits).unwrap()
    }

    #[test]
    fn a_limit_that_is_at_another_position_of_its_key_has_moved() {
        for (before, after, moved) in [
            (
                "5/min; 20/h",
                "1/s; 5/min; 20/h",
                Some("token_bucket 5/min"),
            ),
            ("5/min; 20/h", "20/h; 5/min", Some("token_bucket 5/min")),
            ("5/min; 20/h", "20/h", Some("token_bucket 20/h")),
            ("5/min; 20/h", "9/min; 1/s; 20/h", Some("token_bucket 20/h")),
            ("5/min; 20/h", "5/min; 20/h; 90/d", None),
            ("5/min; 20/h", "5/min", None),
            ("5/min; 20/h", "6/min; 30/h", None),
            ("5/min; 20/h", "5/min; 9/s by ip; 20/h", None),
            (
                "5/min; 9/s by ip",
                "5/min; 1/s by ip; 9/s by ip",
                Some("token_bucket 9/s"),
            ),
            ("5/min; 5/min", "5/min; 5/min; 20/h", None),
        ] {
            let found = moved_limit(&policy(before), &policy(after));
            let found = found.map(|limit| limit.to_string());
            assert_eq!(found.as_deref(), moved, "{before} to {after}");
        }
    }

    #[test]
    fn a_limit_can_move_in_a_tier() {
        let tiered = |limits| policy("5/min").with_tier("pro", limits).unwrap();

        let moved = moved_limit(&tiered("50/min"), &tiered("2/s; 50/min"));

        assert_eq!(moved.unwrap().to_string(), "token_bucket 50/min");
        assert_eq!(
            moved_limit(&tiered("50/min"), &tiered("50/min; 90/h")),
            None
        );
    }

    #[test]
    fn a_registry_logs_one_line_for_each_policy_whose_limits_moved() {
        let log = Log::default();
        let login = || Policy::parse("login", "5/min").unwrap();

        tracing::subscriber::with_default(log.clone(), || {
            let registry = Registry::from_policies([policy("5/min; 20/h"), login()]);
            registry.insert(policy("5/min; 20/h; 90/d"));
            registry.replace([policy("5/min; 20/h"), login()]).unwrap();
            assert_eq!(log.take().len(), 0);
            registry.insert(policy("1/s; 5/min; 20/h"));
            registry
                .replace([policy("20/h; 5/min; 1/s"), login()])
                .unwrap();
        });

        let lines = log.take();
        assert_eq!(lines.len(), 2, "{lines:?}");
        for line in &lines {
            assert!(
                line.starts_with("WARN") && line.contains("limits-reordered"),
                "{line}"
            );
            assert!(line.contains("policy=\"api\""), "{line}");
        }
    }
}

//! The names of policies that rules have.

use std::{fmt::Write as _, time::Duration};

use ratelimit_core::{Key, Policy};

/// The digits of the digest at the end of a name that was cut.
const DIGEST: usize = 16;

/// The name of a rule's policy: `rls:`, or `rlqs:` for buckets, the domain and the path of the rule.
///
/// `rls:edge:generic_5fkey@api:user` is the rule for any `user` below `generic_key=api`. Bytes other than
/// `A-Z a-z 0-9 . -` are escaped as `_hh`, so that different rules have different names. A rule that keeps its path
/// keeps its counts when its limit changes.
///
/// A name has at most 100 bytes, as names of policies have. A longer one is cut and ends with a digest, at each step of a
/// path, so that names of deep paths take neither the memory nor the time of all their texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyName(String);

impl PolicyName {
    /// The name of all rules of a domain, to which paths are added.
    pub(crate) fn domain(domain: &str) -> PolicyName {
        let mut name = "rls:".to_owned();
        escape_into(&mut name, domain);
        PolicyName::bounded(name)
    }

    /// The name of all buckets of a domain, to which paths are added.
    pub(crate) fn buckets(domain: &str) -> PolicyName {
        let mut name = "rlqs:".to_owned();
        escape_into(&mut name, domain);
        PolicyName(name)
    }

    /// The name with another step of the path. An empty value stands for every value.
    pub(crate) fn step(&self, key: &str, value: &str) -> PolicyName {
        let mut name = self.0.clone() + ":";
        escape_into(&mut name, key);
        if !value.is_empty() {
            name.push('@');
            escape_into(&mut name, value);
        }
        PolicyName::bounded(name)
    }

    /// The name of a limit with another period at the same path. Counts of windows of different length must not mix.
    pub(crate) fn with_period(&self, period: Duration) -> PolicyName {
        // A step never begins with `@`, so no path has this name.
        PolicyName::bounded(format!("{}:@{}s", self.0, period.as_secs()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }

    /// The name, or its beginning with a digest of the whole if it is too long.
    fn bounded(name: String) -> PolicyName {
        if name.len() <= Policy::MAX_NAME {
            return PolicyName(name);
        }
        let key = Key::new(&name).expect("a name is not empty");
        let digest = key.fingerprint();
        let digest = &digest.as_str()[digest.as_str().len() - DIGEST..];
        let kept = Policy::MAX_NAME - DIGEST - ":@".len();
        PolicyName(format!("{}:@{digest}", &name[..kept]))
    }
}

/// Appends a text with every byte that is not plain written as `_hh`.
fn escape_into(name: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-') {
            name.push(char::from(byte));
        } else {
            write!(name, "_{byte:02x}").expect("a string takes all that is written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_paths_have_different_names() {
        let edge = PolicyName::domain("edge");
        let names = [
            edge.step("a", "b_c"),
            edge.step("a_b", "c"),
            edge.step("a", "b").step("c", ""),
            edge.step("a", "b:c"),
            edge.step("a@b", "c"),
            edge.step("a", "").with_period(Duration::from_secs(60)),
            edge.step("a", "").step("@60s", ""),
            PolicyName::buckets("edge").step("a", "b_c"),
            PolicyName::domain("edge:a").step("b", ""),
        ];
        for (index, name) in names.iter().enumerate() {
            assert!(Policy::is_valid_name(name.as_str()), "{name:?}");
            assert!(!names[..index].contains(name), "{name:?}");
        }
        assert_eq!(names[0].as_str(), "rls:edge:a@b_5fc");
    }

    #[test]
    fn a_long_name_is_cut_and_stays_its_own() {
        let long = |end: &str| PolicyName::domain("edge").step("path", &format!("{end:/>90}"));
        let (one, other) = (long("1"), long("2"));
        let (one, other) = (one.as_str(), other.as_str());

        assert_eq!(one.len(), Policy::MAX_NAME);
        assert!(Policy::is_valid_name(one));
        assert_eq!(one[..80], other[..80]);
        assert_ne!(one, other);
    }

    #[test]
    fn a_deep_path_has_a_short_name_of_its_own() {
        let deep = |last: &str| {
            let domain = PolicyName::domain(&"d".repeat(4_096));
            let path = (0..99).fold(domain, |path, _| path.step(&"k".repeat(4_096), "v"));
            path.step("user", last)
        };
        let (one, other) = (deep("1"), deep("2"));

        assert_ne!(one, other);
        assert_ne!(one, deep("1").with_period(Duration::from_secs(60)));
        for name in [one, other] {
            assert!(name.0.capacity() <= 2 * Policy::MAX_NAME, "{name:?}");
            assert!(Policy::is_valid_name(name.as_str()));
        }
    }
}

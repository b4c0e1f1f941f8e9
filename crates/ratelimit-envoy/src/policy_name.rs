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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyName(String);

impl PolicyName {
    /// The name of all rules of a domain, to which paths are added.
    pub(crate) fn domain(domain: &str) -> PolicyName {
        let mut name = "rls:".to_owned();
        escape_into(&mut name, domain);
        PolicyName(name)
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
        PolicyName(name)
    }

    /// The name of a limit with another period at the same path. Counts of windows of different length must not mix.
    pub(crate) fn with_period(&self, period: Duration) -> PolicyName {
        // A step never begins with `@`, so no path has this name.
        PolicyName(format!("{}:@{}s", self.0, period.as_secs()))
    }

    /// The name as policies have it: at most 100 bytes, a longer one ends with a digest.
    pub(crate) fn bounded(&self) -> String {
        if self.0.len() <= Policy::MAX_NAME {
            return self.0.clone();
        }
        let key = Key::new(&self.0).expect("a name is not empty");
        let digest = key.fingerprint();
        let digest = &digest.as_str()[digest.as_str().len() - DIGEST..];
        let kept = Policy::MAX_NAME - DIGEST - ":@".len();
        format!("{}:@{digest}", &self.0[..kept])
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
            assert!(Policy::is_valid_name(&name.bounded()), "{name:?}");
            assert!(!names[..index].contains(name), "{name:?}");
        }
        assert_eq!(names[0].bounded(), "rls:edge:a@b_5fc");
    }

    #[test]
    fn a_long_name_is_cut_and_stays_its_own() {
        let long = |end: &str| PolicyName::domain("edge").step("path", &format!("{end:/>90}"));
        let (one, other) = (long("1").bounded(), long("2").bounded());

        assert_eq!(one.len(), Policy::MAX_NAME);
        assert!(Policy::is_valid_name(&one));
        assert_eq!(one[..80], other[..80]);
        assert_ne!(one, other);
    }
}

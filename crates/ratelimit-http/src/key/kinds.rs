//! The kinds of keys that an extractor makes.

use std::fmt;

use ratelimit_core::Key;

use crate::key::{credential::is_credential, rule_key::RuleKey};

/// The kinds of keys that an extractor makes.
///
/// A layer compares them with the keys that the rules and tenants of its policy name, and logs one
/// warning about each that no request can have. The kinds of a function are unknown unless it declares them with
/// `key_kinds`.
///
/// ```
/// use ratelimit_http::key::KeyKinds;
///
/// let tenants = KeyKinds::named("header", "x-tenant");
/// assert!(tenants.can_make(&"printed:header:x-tenant:acme".parse()?));
/// assert!(!tenants.can_make(&"key:acme".parse()?));
/// assert!(KeyKinds::unknown().can_make(&"key:acme".parse()?));
/// # Ok::<(), ratelimit_http::InvalidSyntax>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyKinds {
    /// The alternatives, each with the beginning of every part of a key; `None` if they are unknown.
    alternatives: Option<Vec<Vec<String>>>,
}

/// The beginning of a secret, whose key is a digest.
const SECRET: &str = "secret:";
/// The beginning of a key that is a digest.
const DIGEST: &str = "sha256~";

impl KeyKinds {
    /// Any kind: the extractor cannot tell.
    pub const fn unknown() -> KeyKinds {
        KeyKinds { alternatives: None }
    }

    /// Keys of [`Key::tagged`] with this tag.
    ///
    /// ```
    /// use ratelimit_http::key::KeyKinds;
    ///
    /// assert!(KeyKinds::tagged("user").can_make(&"printed:user:4711".parse()?));
    /// # Ok::<(), ratelimit_http::InvalidSyntax>(())
    /// ```
    pub fn tagged(tag: &str) -> KeyKinds {
        KeyKinds::beginning(format!("{tag}:"))
    }

    /// Keys of [`Key::tagged`] whose value is `name`, a colon and anything.
    pub fn named(tag: &str, name: &str) -> KeyKinds {
        match Key::tagged(tag, format!("{name}:")) {
            Ok(key) => KeyKinds::beginning(key.to_string()),
            Err(_) => KeyKinds::unknown(),
        }
    }

    /// Keys of a value that requests have under `name`: a digest if that is the name of a credential.
    pub(crate) fn of_named(tag: &str, name: &str) -> KeyKinds {
        if is_credential(name) {
            KeyKinds::hashed(tag)
        } else {
            KeyKinds::named(tag, name)
        }
    }

    /// Keys of [`Key::hashed`] with this tag.
    ///
    /// ```
    /// use ratelimit_http::key::KeyKinds;
    ///
    /// let kinds = KeyKinds::hashed("api-key");
    /// assert!(kinds.can_make(&"secret:api-key:5up3r".parse()?));
    /// assert!(!kinds.can_make(&"secret:cookie:session:5up3r".parse()?));
    /// # Ok::<(), ratelimit_http::InvalidSyntax>(())
    /// ```
    pub fn hashed(tag: &str) -> KeyKinds {
        KeyKinds::beginning(format!("{SECRET}{tag}:"))
    }

    fn beginning(text: String) -> KeyKinds {
        KeyKinds {
            alternatives: Some(vec![vec![text]]),
        }
    }

    /// The kinds of an extractor that makes keys of either. They are unknown if one of the two is.
    ///
    /// ```
    /// use ratelimit_http::key::KeyKinds;
    ///
    /// let either = KeyKinds::tagged("user").or(KeyKinds::tagged("ip"));
    /// assert!(either.can_make(&"printed:user:4711".parse()?));
    /// assert!(!either.can_make(&"key:4711".parse()?));
    /// # Ok::<(), ratelimit_http::InvalidSyntax>(())
    /// ```
    #[must_use]
    pub fn or(self, other: KeyKinds) -> KeyKinds {
        let both = self.alternatives.zip(other.alternatives);
        KeyKinds {
            alternatives: both.map(|(mut one, other)| {
                one.extend(other);
                one
            }),
        }
    }

    /// The kinds of an extractor that [joins](Key::join) a key of each. They are unknown if one of the two is.
    ///
    /// ```
    /// use ratelimit_http::key::KeyKinds;
    ///
    /// let both = KeyKinds::tagged("user").join(&KeyKinds::tagged("route"));
    /// assert!(both.can_make(&"printed:user:4711/route:login".parse()?));
    /// assert!(!both.can_make(&"printed:user:4711".parse()?));
    /// # Ok::<(), ratelimit_http::InvalidSyntax>(())
    /// ```
    #[must_use]
    pub fn join(self, other: &KeyKinds) -> KeyKinds {
        let (Some(first), Some(second)) = (&self.alternatives, &other.alternatives) else {
            return KeyKinds::unknown();
        };
        let pairs = first
            .iter()
            .flat_map(|one| second.iter().map(|two| [&one[..], &two[..]].concat()));
        KeyKinds {
            alternatives: Some(pairs.collect()),
        }
    }

    /// Whether the extractor could make this key.
    ///
    /// - A secret is compared by its kind only: its value is a digest.
    /// - A key that is a digest as a whole, because it would be too long, could be of any kind.
    pub fn can_make(&self, key: &RuleKey) -> bool {
        let Some(alternatives) = &self.alternatives else {
            return true;
        };
        let text = match key.secret_kind() {
            Some(kind) => format!("{SECRET}{kind}:"),
            None => key.key().to_string(),
        };
        let parts = parts(&text);
        // A key that would be too long is one digest, whatever its parts.
        if let [single] = &parts[..]
            && single.starts_with(DIGEST)
        {
            return true;
        }
        let could_be = |part: &str, beginning: &str| {
            part.starts_with(beginning) || part.starts_with(DIGEST) && beginning.starts_with(SECRET)
        };
        alternatives.iter().any(|beginnings| {
            let mut pairs = parts.iter().zip(beginnings);
            parts.len() == beginnings.len() && pairs.all(|(part, start)| could_be(part, start))
        })
    }

    /// The warning about a rule or a tenant whose key no request can have.
    pub(crate) fn warning(&self, noun: &str, key: &RuleKey) -> Option<String> {
        (!self.can_make(key)).then(|| {
            format!(
                "the {noun} {key} never matches: keys are {self}; write printed:TEXT for the key \
                 that prints TEXT, or secret:KIND:VALUE for an API key or a cookie"
            )
        })
    }
}

/// The parts of a printed key. The prefix length of a network belongs to the part before it.
fn parts(text: &str) -> Vec<&str> {
    let is_part = |part: &&str| part.contains(':') || part.starts_with(DIGEST);
    text.split('/').filter(is_part).collect()
}

impl fmt::Display for KeyKinds {
    /// Writes the beginnings of the keys: `header:x-tenant:... or ip:...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(alternatives) = &self.alternatives else {
            return f.write_str("of any kind");
        };
        for (index, beginnings) in alternatives.iter().enumerate() {
            let or = if index == 0 { "" } else { " or " };
            write!(f, "{or}{}...", beginnings.join(".../"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn can_make(kinds: &KeyKinds, text: &str) -> bool {
        kinds.can_make(&text.parse().expect(text))
    }

    #[test]
    fn a_combined_key_is_compared_part_by_part() {
        let client = KeyKinds::hashed("api-key").or(KeyKinds::tagged("ip"));
        let kinds = client.join(&KeyKinds::named("header", "x-tenant"));
        let digest = "a".repeat(64);

        for possible in [
            "printed:ip:10.0.0.0/8/header:x-tenant:acme",
            "printed:ip:2001:db8::1/header:x-tenant:acme",
            &format!("printed:sha256~{digest}/header:x-tenant:acme"),
            &format!("printed:sha256~{digest}"),
        ] {
            assert!(can_make(&kinds, possible), "{possible}");
        }
        for impossible in [
            "key:acme",
            "secret:api-key:s3cr3t",
            "printed:header:x-tenant:acme",
            "printed:ip:10.0.0.0/8",
            "printed:header:x-tenant:acme/ip:10.0.0.1",
            "printed:ip:10.0.0.1/header:x-user:acme",
        ] {
            assert!(!can_make(&kinds, impossible), "{impossible}");
        }
        assert_eq!(
            kinds.to_string(),
            "secret:api-key:.../header:x-tenant:... or ip:.../header:x-tenant:..."
        );
    }

    #[test]
    fn a_secret_is_of_one_kind() {
        let cookie = KeyKinds::hashed("cookie");

        assert!(can_make(&cookie, "secret:cookie:session:1"));
        assert!(!can_make(&cookie, "secret:api-key:1"));
        assert!(!can_make(&cookie, "printed:cookie:session:1"));
    }

    #[test]
    fn an_unknown_kind_makes_the_combination_unknown() {
        let known = KeyKinds::tagged("ip");

        for kinds in [
            known.clone().or(KeyKinds::unknown()),
            known.join(&KeyKinds::unknown()),
        ] {
            assert!(can_make(&kinds, "key:acme"));
        }
    }
}

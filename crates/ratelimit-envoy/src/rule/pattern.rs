//! Texts with `*`.

/// A text in which `*` stands for any bytes, also for none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    /// The text before the first `*`.
    prefix: Box<[u8]>,
    /// The texts between two `*`, in order; empty ones are left out.
    middle: Vec<Box<[u8]>>,
    /// The text after the last `*`.
    suffix: Box<[u8]>,
}

impl Pattern {
    /// The pattern of a text, or `None` if the text contains no `*`.
    pub(crate) fn parse(text: &str) -> Option<Pattern> {
        let (prefix, rest) = text.split_once('*')?;
        let (middle, suffix) = rest.rsplit_once('*').unwrap_or(("", rest));
        let middle = middle.split('*').filter(|part| !part.is_empty());
        Some(Pattern {
            prefix: prefix.as_bytes().into(),
            middle: middle.map(|part| part.as_bytes().into()).collect(),
            suffix: suffix.as_bytes().into(),
        })
    }

    /// Whether a text matches.
    ///
    /// Each middle part is found at its first place, which leaves the most for the parts after it. The time is
    /// proportional to the length of the text for each part.
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        let Some(rest) = text.strip_prefix(&*self.prefix) else {
            return false;
        };
        let Some(mut rest) = rest.strip_suffix(&*self.suffix) else {
            return false;
        };
        for part in &self.middle {
            let found = rest
                .windows(part.len())
                .position(|window| window == &**part);
            let Some(at) = found else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(text.as_bytes())
    }

    #[test]
    fn a_star_stands_for_any_text() {
        assert!(Pattern::parse("plain").is_none());
        assert!(matches("*", ""));
        assert!(matches("/a/*", "/a/"));
        assert!(matches("*.pdf", "x.pdf"));
        assert!(matches("/*/mid/*", "/z/mid/q"));
        assert!(matches("a*b*b", "abb"));
        assert!(!matches("a*b*b", "ab"));
        assert!(!matches("a*a", "a"), "prefix and suffix do not overlap");
        assert!(!matches("/a/*", "/b/x"));
    }

    /// The definition: a `*` takes no byte, or one byte and continues.
    fn matches_slowly(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, _) => text.is_empty(),
            (Some((b'*', rest)), _) => {
                matches_slowly(rest, text)
                    || text
                        .split_first()
                        .is_some_and(|(_, text)| matches_slowly(pattern, text))
            }
            (Some((byte, rest)), Some((first, text))) => {
                byte == first && matches_slowly(rest, text)
            }
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_by_its_definition(pattern in "[ab*]{0,6}\\*[ab*]{0,6}", text in "[ab]{0,8}") {
            let fast = Pattern::parse(&pattern).unwrap().matches(text.as_bytes());
            prop_assert_eq!(fast, matches_slowly(pattern.as_bytes(), text.as_bytes()));
        }
    }
}

//! The lookup of descriptors: one level for each entry.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use ratelimit_core::Key;
use ratelimit_http::key::is_credential;

use crate::{
    proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry,
    rule::{Rule, pattern::Pattern},
};

/// The rules for one entry of a descriptor.
#[derive(Debug, Default)]
pub(crate) struct DescriptorLevel {
    keys: HashMap<Box<[u8]>, KeyRules>,
    /// Rules whose key is a pattern, in the order of the file.
    key_patterns: PatternNodes<KeyPattern>,
    /// The number of nodes, which numbers the next one.
    len: usize,
}

/// The rules for entries of one key.
#[derive(Debug, Default)]
struct KeyRules {
    exact: HashMap<Box<[u8]>, RuleNode>,
    /// Rules whose value is a pattern, in the order of the file.
    patterns: PatternNodes<Pattern>,
    /// The rule for every other value.
    any: Option<RuleNode>,
}

/// Nodes that are found by a pattern, in the order of the file.
#[derive(Debug)]
struct PatternNodes<P> {
    nodes: Vec<PatternNode<P>>,
    /// The index of each pattern: a search would take quadratic time to build many of them.
    indexes: HashMap<Arc<P>, usize>,
}

/// A node with its pattern, and its number in the level.
#[derive(Debug)]
struct PatternNode<P> {
    number: usize,
    pattern: Arc<P>,
    node: RuleNode,
}

/// A pattern as key, with the values that it matches.
#[derive(Debug, PartialEq, Eq, Hash)]
struct KeyPattern {
    key: Pattern,
    value: ValueMatch,
}

/// The values that a rule with a pattern as its key matches.
#[derive(Debug, PartialEq, Eq, Hash)]
enum ValueMatch {
    Any,
    Exact(Box<[u8]>),
    Pattern(Pattern),
}

/// The end of a rule's path, or a step on the path of longer ones.
#[derive(Debug, Default)]
pub(crate) struct RuleNode {
    pub(crate) rule: Option<Rule>,
    /// The pattern that all its values share one budget under.
    pub(crate) shared_pattern: Option<Box<[u8]>>,
    /// The key and the value of the rule in metrics.
    pub(crate) metric_key: String,
    /// Whether metrics have the value of the entry.
    pub(crate) value_to_metric: bool,
    pub(crate) next: DescriptorLevel,
}

impl DescriptorLevel {
    /// Adds a node, unless there is one for the same key and value already.
    pub(crate) fn add(&mut self, key: &str, value: &str, node: RuleNode) -> bool {
        let before = self.len;
        *self.entry(key, value) = node;
        self.len > before
    }

    /// The node for a key and a value, which is added unless it is there. An empty value stands for every value.
    pub(crate) fn entry(&mut self, key: &str, value: &str) -> &mut RuleNode {
        if let Some(key) = Pattern::parse(key) {
            let value = match Pattern::parse(value) {
                Some(pattern) => ValueMatch::Pattern(pattern),
                None if value.is_empty() => ValueMatch::Any,
                None => ValueMatch::Exact(value.as_bytes().into()),
            };
            let pattern = KeyPattern { key, value };
            return self.key_patterns.entry(pattern, &mut self.len);
        }
        let rules = self.keys.entry(key.as_bytes().into()).or_default();
        if let Some(pattern) = Pattern::parse(value) {
            return rules.patterns.entry(pattern, &mut self.len);
        }
        let mut added = || {
            self.len += 1;
            RuleNode::default()
        };
        if value.is_empty() {
            return rules.any.get_or_insert_with(&mut added);
        }
        let exact = rules.exact.entry(value.as_bytes().into());
        exact.or_insert_with(&mut added)
    }

    /// The nodes of this level, in no order.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &RuleNode> {
        let by_key = self.keys.values().flat_map(|rules| {
            let patterns = rules.patterns.nodes.iter().map(|one| &one.node);
            rules.exact.values().chain(patterns).chain(&rules.any)
        });
        by_key.chain(self.key_patterns.nodes.iter().map(|one| &one.node))
    }

    /// The node of each entry, if all entries have one.
    pub(crate) fn find(&self, entries: &[Entry]) -> Option<Vec<&RuleNode>> {
        let mut level = self;
        let mut path = Vec::with_capacity(entries.len());
        for entry in entries {
            let node = level.node(entry)?;
            path.push(node);
            level = &node.next;
        }
        Some(path)
    }

    /// The node of one entry: that of its value, else of the first pattern that matches, else of its key.
    fn node(&self, entry: &Entry) -> Option<&RuleNode> {
        let rules = self.keys.get(&*entry.key);
        if let Some(node) = rules.and_then(|rules| rules.exact.get(&*entry.value)) {
            return Some(node);
        }
        let by_value = rules.and_then(|rules| {
            let patterns = &rules.patterns;
            patterns.first_where(|pattern| pattern.matches(&entry.value))
        });
        let by_key = self
            .key_patterns
            .first_where(|pattern| pattern.matches(entry));
        let first = [by_value, by_key]
            .into_iter()
            .flatten()
            .min_by_key(|(number, _)| *number);
        first
            .map(|(_, node)| node)
            .or_else(|| rules.and_then(|rules| rules.any.as_ref()))
    }
}

impl<P: Eq + Hash> PatternNodes<P> {
    /// The node of a pattern, which is added unless it is there. `len` is the number of nodes of the level.
    fn entry(&mut self, pattern: P, len: &mut usize) -> &mut RuleNode {
        let pattern = Arc::new(pattern);
        let next = self.nodes.len();
        let index = *self.indexes.entry(Arc::clone(&pattern)).or_insert(next);
        if index == next {
            self.nodes.push(PatternNode {
                number: *len,
                pattern,
                node: RuleNode::default(),
            });
            *len += 1;
        }
        &mut self.nodes[index].node
    }

    /// The first node whose pattern matches, with its number.
    fn first_where(&self, matches: impl Fn(&P) -> bool) -> Option<(usize, &RuleNode)> {
        let found = self.nodes.iter().find(|one| matches(&one.pattern));
        found.map(|one| (one.number, &one.node))
    }
}

impl<P> Default for PatternNodes<P> {
    fn default() -> PatternNodes<P> {
        PatternNodes {
            nodes: Vec::new(),
            indexes: HashMap::new(),
        }
    }
}

impl KeyPattern {
    fn matches(&self, entry: &Entry) -> bool {
        self.key.matches(&entry.key)
            && match &self.value {
                ValueMatch::Any => true,
                ValueMatch::Exact(value) => *entry.value == **value,
                ValueMatch::Pattern(pattern) => pattern.matches(&entry.value),
            }
    }
}

/// The key of a budget: each entry's key and value, or the pattern that its values share. The value of a
/// [credential](is_credential) is hashed.
///
/// Different entries have different keys, whatever bytes they contain. `None` without entries.
pub(crate) fn budget_key(entries: &[Entry], path: &[&RuleNode]) -> Option<Key> {
    let parts = entries.iter().enumerate().flat_map(|(index, entry)| {
        let shared = path
            .get(index)
            .and_then(|node| node.shared_pattern.as_deref());
        let key = Key::tagged("k", &entry.key).or_else(|_| Key::tagged("empty", "key"));
        let value = match shared {
            Some(pattern) => Key::tagged("pattern", pattern),
            None if is_credential(&entry.key) => Key::hashed("v", &entry.value),
            None => Key::tagged("v", &entry.value),
        };
        // An entry without a value has one part: the next part is then a key, which no value is.
        [key.ok(), value.ok()].into_iter().flatten()
    });
    parts.reduce(|whole, part| whole.join(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_credential_is_a_digest_in_the_key() {
        let key = |key: &'static str| {
            let entry = Entry {
                key: key.into(),
                value: "s3cr3t".into(),
            };
            budget_key(&[entry], &[]).expect("an entry").to_string()
        };

        assert_eq!(key("tenant"), "k:tenant/v:s3cr3t");
        for credential in ["api_key", "Authorization", "x-session-id"] {
            assert!(!key(credential).contains("s3cr3t"), "{credential}");
        }
        assert_ne!(key("api_key"), key("authorization"));
    }
}

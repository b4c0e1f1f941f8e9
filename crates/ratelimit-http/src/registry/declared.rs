//! Policies that the program uses: those that its attributes and layers name.

use std::{collections::BTreeSet, error, fmt};

inventory::collect!(DeclaredPolicy);

/// One `#[rate_limit(policy = "...")]` and its location in the source.
///
/// Every such attribute that is linked into the program is collected, whether its handler is routed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeclaredPolicy {
    /// The source file, as `file!()` gives it.
    pub file: &'static str,
    /// The line of the attribute, from 1.
    pub line: u32,
    /// The handler's module and name.
    pub handler: &'static str,
    /// The name of the policy.
    pub policy: &'static str,
}

impl fmt::Display for DeclaredPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeclaredPolicy {
            file,
            line,
            handler,
            policy,
        } = self;
        write!(
            f,
            "#[rate_limit(policy = {policy:?})] on {handler} at {file}:{line}"
        )
    }
}

/// Policies that attributes or layers of the program name and a registry does not have.
///
/// The message lists each attribute with its file and line, each such layer, and the policies that the registry
/// has.
#[derive(Clone, PartialEq, Eq)]
pub struct MissingPolicies {
    attributes: BTreeSet<DeclaredPolicy>,
    layers: BTreeSet<Box<str>>,
    known: Vec<Box<str>>,
}

impl MissingPolicies {
    /// The policies of `layers`, and the declared ones if `is_declared`, that are not among the `known` names;
    /// `None` if there are none.
    pub(crate) fn among<'a>(
        known: impl IntoIterator<Item = &'a str>,
        is_declared: bool,
        layers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Option<MissingPolicies> {
        let known: BTreeSet<&str> = known.into_iter().collect();
        let all = inventory::iter::<DeclaredPolicy>();
        let lost = all.filter(|attribute| is_declared && !known.contains(attribute.policy));
        // A set, because macros such as `#[debug_handler]` repeat a handler together with its attribute.
        let attributes: BTreeSet<DeclaredPolicy> = lost.copied().collect();
        let layers = layers.into_iter();
        let layers = layers.filter(|name| !known.contains(name.as_ref()));
        let layers: BTreeSet<Box<str>> = layers.map(|name| Box::from(name.as_ref())).collect();
        if attributes.is_empty() && layers.is_empty() {
            return None;
        }
        Some(MissingPolicies {
            attributes,
            layers,
            known: known.into_iter().map(Box::from).collect(),
        })
    }

    /// The attributes whose policy is missing, in the order of files and lines.
    pub fn attributes(&self) -> impl Iterator<Item = &DeclaredPolicy> {
        self.attributes.iter()
    }

    /// The missing policies that layers name, in alphabetical order.
    pub fn layers(&self) -> impl Iterator<Item = &str> {
        self.layers.iter().map(|name| &**name)
    }
}

impl fmt::Display for MissingPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the registry has no policy for ")?;
        let attributes = self.attributes.iter().map(DeclaredPolicy::to_string);
        let layers = self.layers.iter();
        let layers = layers.map(|name| format!("the layer of {name:?}"));
        let users: Vec<String> = attributes.chain(layers).collect();
        f.write_str(&users.join(", "))?;
        if self.known.is_empty() {
            return f.write_str("; add it, the registry is empty");
        }
        let known = self.known.join(", ");
        write!(f, "; add it, or write one of: {known}")
    }
}

debug_as_display!(MissingPolicies);

impl error::Error for MissingPolicies {}

#[cfg(test)]
mod tests {
    use super::*;

    inventory::submit! {
        DeclaredPolicy { file: "src/b.rs", line: 7, handler: "shop::buy", policy: "buy" }
    }
    inventory::submit! {
        DeclaredPolicy { file: "src/a.rs", line: 3, handler: "shop::login", policy: "login" }
    }
    inventory::submit! {
        DeclaredPolicy { file: "src/a.rs", line: 3, handler: "shop::login", policy: "login" }
    }

    #[test]
    fn each_attribute_without_a_policy_is_listed_once() {
        let message = |known: &[&str]| {
            let missing = MissingPolicies::among(known.iter().copied(), true, [""; 0]);
            missing.map(|missing| missing.to_string())
        };

        let nothing = message(&[]).unwrap();
        let login = message(&["buy", "api"]).unwrap();

        assert_eq!(
            nothing,
            "the registry has no policy for \
             #[rate_limit(policy = \"login\")] on shop::login at src/a.rs:3, \
             #[rate_limit(policy = \"buy\")] on shop::buy at src/b.rs:7; \
             add it, the registry is empty"
        );
        assert_eq!(
            login,
            "the registry has no policy for \
             #[rate_limit(policy = \"login\")] on shop::login at src/a.rs:3; \
             add it, or write one of: api, buy"
        );
        assert_eq!(message(&["buy", "login"]), None);
    }
}

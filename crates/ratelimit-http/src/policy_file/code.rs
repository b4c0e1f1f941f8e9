//! Codes of diagnostics.

use std::fmt;

/// The severity of a [`Diagnostic`](crate::policy_file::Diagnostic).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// The file is rejected.
    Error,
    /// The file is accepted, and probably means something else than its author.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])+ $name:ident = $severity:ident $text:literal,)+) => {
        /// The code of a diagnostic. `docs/reference/policy-file.md` has a section for each.
        ///
        /// ```
        /// use ratelimit_http::policy_file::{DiagnosticCode, Severity};
        ///
        /// assert_eq!(DiagnosticCode::UnknownField.as_str(), "unknown-field");
        /// assert_eq!(DiagnosticCode::ShadowedLimit.severity(), Severity::Warning);
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DiagnosticCode {
            $($(#[$doc])+ $name,)+
        }

        impl DiagnosticCode {
            /// All codes.
            pub const ALL: &'static [DiagnosticCode] = &[$(DiagnosticCode::$name),+];

            /// The name of the code, which never changes.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(DiagnosticCode::$name => $text,)+
                }
            }

            /// The severity.
            pub const fn severity(self) -> Severity {
                match self {
                    $(DiagnosticCode::$name => Severity::$severity,)+
                }
            }
        }
    };
}

codes! {
    /// The file's name ends neither in `.toml` nor in `.yaml` or `.yml`.
    UnknownFormat = Error "unknown-format",
    /// The file is longer than a mebibyte.
    TooLarge = Error "too-large",
    /// The file is not UTF-8.
    NotText = Error "not-text",
    /// The file is not TOML, or not YAML.
    Syntax = Error "syntax",
    /// Lists and tables are nested too deeply.
    TooDeep = Error "too-deep",
    /// YAML beyond plain tables, lists and values.
    UnsupportedYaml = Error "unsupported-yaml",
    /// The file is empty.
    EmptyFile = Error "empty-file",
    /// Unknown field.
    UnknownField = Error "unknown-field",
    /// A name is used twice.
    DuplicateName = Error "duplicate-name",
    /// A required field is missing.
    MissingField = Error "missing-field",
    /// A value has the wrong type, such as a text in place of a list.
    WrongType = Error "wrong-type",
    /// A value is not valid for its field.
    BadValue = Error "bad-value",
    /// A name is not valid for a policy.
    BadName = Error "bad-name",
    /// A text is not a list of limits.
    BadLimit = Error "bad-limit",
    /// A cost exceeds what a limit of the policy can ever hold.
    ImpossibleCost = Error "impossible-cost",
    /// Unknown failure mode.
    UnknownFailureMode = Error "unknown-failure-mode",
    /// Unknown throttle mode, or one that a limit of the policy does not support.
    BadThrottle = Error "bad-throttle",
    /// A limit that cannot be prefetched, under a policy with `prefetch`.
    ///
    /// The message names the limit and the reason.
    NotPrefetchable = Error "not-prefetchable",
    /// A tenant is assigned to an unknown tier.
    UnknownTier = Error "unknown-tier",
    /// An Envoy rule names a policy that does not exist.
    UnknownPolicy = Error "unknown-policy",
    /// A limit is too fine for grants of Envoy's rate limit quota service.
    RlqsTooFine = Error "rlqs-too-fine",
    /// A text is not a rule.
    BadRule = Error "bad-rule",
    /// Two fields contradict each other.
    ConflictingFields = Error "conflicting-fields",
    /// The trusted proxies contain all addresses.
    TrustsEveryone = Error "trusts-everyone",
    /// A limit never denies, because another limit of its policy is stricter.
    ShadowedLimit = Warning "shadowed-limit",
    /// A policy has the same limit twice.
    RepeatedLimit = Warning "repeated-limit",
    /// A token bucket with a period of an hour or more: nearly twice as much passes in its first period.
    SlowBucket = Warning "slow-bucket",
    /// Tiers of a policy have different algorithms at the same position.
    TierAlgorithms = Warning "tier-algorithms",
    /// A share of a limit that is too small to be prefetched.
    ///
    /// Fewer than four units are not worth a call to the store.
    PrefetchesNothing = Warning "prefetches-nothing",
    /// A field has no effect, because of another.
    IgnoredField = Warning "ignored-field",
    /// A known field is in a table that does not have it, so it has no effect.
    ///
    /// Only files of Envoy rules are accepted with it.
    MisplacedField = Warning "misplaced-field",
    /// A field is there twice in a file of Envoy rules: the last value counts.
    RepeatedField = Warning "repeated-field",
    /// The key of an Envoy rule contains `*`, so it matches several keys.
    KeyPattern = Warning "key-pattern",
    /// A rule has no effect, because of another.
    OverlappingRule = Warning "overlapping-rule",
    /// A rule or a tenant names a key that no request can have.
    UnmatchedKey = Warning "unmatched-key",
    /// A trusted network is inside another.
    OverlappingTrusted = Warning "overlapping-trusted",
    /// Every peer is trusted, so any client can choose the key it is counted by.
    AnyPeerTrusted = Warning "any-peer-trusted",
    /// The logs of all keys that the memory store may keep could exceed its limit in bytes.
    LogsExceedMemory = Warning "logs-exceed-memory",
    /// Other hosts can connect, and there is no admin token.
    NoAdminToken = Warning "no-admin-token",
}

impl fmt::Display for DiagnosticCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

//! What can be wrong with a policy file, each by its short name.

use std::fmt;

/// Whether a file stands in spite of a [`Diagnostic`](crate::policy_file::Diagnostic).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file stands, and probably means something else.
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
        /// What can be wrong with a policy file; `docs/policy-file.md` has a section for each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DiagnosticCode {
            $($(#[$doc])+ $name,)+
        }

        impl DiagnosticCode {
            /// All of them.
            pub const ALL: &'static [DiagnosticCode] = &[$(DiagnosticCode::$name),+];

            /// Its name, which stays.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(DiagnosticCode::$name => $text,)+
                }
            }

            /// Whether a file stands in spite of it.
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
    /// Lists and tables stand in each other too deep.
    TooDeep = Error "too-deep",
    /// YAML beyond plain tables, lists and values.
    UnsupportedYaml = Error "unsupported-yaml",
    /// The file says nothing.
    EmptyFile = Error "empty-file",
    /// A field that there is not.
    UnknownField = Error "unknown-field",
    /// A name that is there twice.
    DuplicateName = Error "duplicate-name",
    /// A field that must be there is not.
    MissingField = Error "missing-field",
    /// A text where a list belongs, and the like.
    WrongType = Error "wrong-type",
    /// A value that the field cannot have.
    BadValue = Error "bad-value",
    /// A name that no policy can have.
    BadName = Error "bad-name",
    /// A text that is not that of limits.
    BadLimit = Error "bad-limit",
    /// A cost that no budget of the policy can ever pay.
    ImpossibleCost = Error "impossible-cost",
    /// A failure mode that there is not.
    UnknownFailureMode = Error "unknown-failure-mode",
    /// A throttle mode that there is not, or that a limit cannot have.
    BadThrottle = Error "bad-throttle",
    /// A tenant in a tier that there is not.
    UnknownTier = Error "unknown-tier",
    /// A text that is no rule.
    BadRule = Error "bad-rule",
    /// Fields that contradict each other.
    ConflictingFields = Error "conflicting-fields",
    /// Trusted proxies that are everyone.
    TrustsEveryone = Error "trusts-everyone",
    /// A limit that another of its policy makes needless.
    ShadowedLimit = Warning "shadowed-limit",
    /// A limit that its policy has twice.
    RepeatedLimit = Warning "repeated-limit",
    /// Tiers of a policy with different algorithms at one position.
    TierAlgorithms = Warning "tier-algorithms",
    /// A field without effect, because of another.
    IgnoredField = Warning "ignored-field",
    /// A rule without effect, because of another.
    OverlappingRule = Warning "overlapping-rule",
    /// A trusted network inside another.
    OverlappingTrusted = Warning "overlapping-trusted",
    /// Whoever connects can name its own key.
    AnyPeerTrusted = Warning "any-peer-trusted",
    /// The largest logs of as many keys as are kept in memory exceed its bound in bytes.
    LogsExceedMemory = Warning "logs-exceed-memory",
    /// Others can connect, and there is no admin token.
    NoAdminToken = Warning "no-admin-token",
}

impl fmt::Display for DiagnosticCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

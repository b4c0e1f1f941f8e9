//! The Envoy rules of the configuration file.

use std::path::PathBuf;

use ratelimit_envoy::{RulesBuilder, RulesConfig};
use ratelimit_http::policy_file::{Diagnostic, InvalidPolicyFile, Severity};

use super::{invalid::InvalidConfig, policies::Policies};

/// The Envoy rules of the configuration file.
#[derive(Clone, Debug)]
pub(crate) struct EnvoyRules {
    pub(super) path: PathBuf,
    pub(super) rules: RulesConfig,
}

impl EnvoyRules {
    /// Adds the rules, and returns the warnings about them.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig::File`] if a rule has an error.
    pub(crate) fn add_to(
        &self,
        builder: &mut RulesBuilder,
        policies: &Policies,
    ) -> Result<Vec<Diagnostic>, InvalidConfig> {
        let RulesConfig {
            rules,
            buckets,
            unmatched,
            ..
        } = &self.rules;
        let mut findings = builder.add_rules(rules, |name| policies.http(name));
        findings.extend(builder.add_buckets(buckets, *unmatched, |name| policies.http(name)));
        let mut severities = findings.iter().map(Diagnostic::severity);
        if severities.any(|severity| severity == Severity::Error) {
            return Err(InvalidConfig::File {
                path: self.path.clone(),
                why: InvalidPolicyFile::new(findings),
            });
        }
        Ok(findings)
    }
}

//! The resources of the xDS server.

use std::{collections::HashSet, error::Error, fmt};

use ratelimit_envoy::{
    ResourceDiagnostic, RulesBuilder, proto::ratelimit::config::ratelimit::v3::RateLimitConfig,
};

use crate::envoy::log_text::one_line;

/// The number of mistakes in an error, and of warnings in the log for each response.
const MAX_SHOWN: usize = 10;

/// The resources of one response, in the order of domains: a response has them in any order.
#[derive(Debug, Default)]
pub(super) struct Resources {
    resources: Vec<RateLimitConfig>,
    /// The warnings that were logged.
    warnings: HashSet<ResourceDiagnostic>,
}

impl Resources {
    pub(super) fn new(mut resources: Vec<RateLimitConfig>) -> Resources {
        resources.sort_by(|one, other| (&one.domain, &one.name).cmp(&(&other.domain, &other.name)));
        Resources {
            resources,
            warnings: HashSet::new(),
        }
    }

    /// Whether the rules are equal.
    pub(super) fn has_same_rules_as(&self, other: &Resources) -> bool {
        self.resources == other.resources
    }

    /// Warnings of `before` are not logged again.
    pub(super) fn inherit_warnings(&mut self, before: &Resources) {
        self.warnings.clone_from(&before.warnings);
    }

    /// Adds the rules, and logs the new warnings about them.
    pub(super) fn add_to(&mut self, builder: &mut RulesBuilder) -> Result<(), RefusedResources> {
        let resources = self.resources.iter();
        let found: Vec<_> = resources
            .flat_map(|resource| builder.add_resource(resource))
            .collect();
        let (errors, warnings): (Vec<_>, Vec<_>) =
            found.into_iter().partition(ResourceDiagnostic::is_error);
        if !errors.is_empty() {
            return Err(RefusedResources(errors));
        }
        let is_new = |warning: &&ResourceDiagnostic| !self.warnings.contains(*warning);
        let new: Vec<_> = warnings.iter().filter(is_new).collect();
        for warning in new.iter().take(MAX_SHOWN) {
            tracing::warn!("the xDS server: {}", one_line(warning));
        }
        if new.len() > MAX_SHOWN {
            let more = new.len() - MAX_SHOWN;
            tracing::warn!("the xDS server: {more} more warnings");
        }
        self.warnings = warnings.into_iter().collect();
        Ok(())
    }
}

/// Resources with errors. It displays the first ones.
#[derive(Debug)]
pub(super) struct RefusedResources(Vec<ResourceDiagnostic>);

impl fmt::Display for RefusedResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().take(MAX_SHOWN).enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{error}")?;
        }
        match self.0.len().checked_sub(MAX_SHOWN) {
            Some(more @ 1..) => write!(f, "; and {more} more"),
            _ => Ok(()),
        }
    }
}

impl Error for RefusedResources {}

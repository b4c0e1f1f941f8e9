//! From a request to the members that decide it.

use std::{error, fmt};

use ratelimit_core::{
    KeySet,
    store::{JointRole, MAX_JOINT_ENTRIES, MAX_JOINT_HITS},
};

use crate::{
    charge::Charge,
    matched_descriptor::MatchedDescriptor,
    member::Member,
    proto::envoy::{
        extensions::common::ratelimit::v3::RateLimitDescriptor,
        service::ratelimit::v3::RateLimitRequest,
    },
    rule::{Effect, Rate, Role, Rule, RuleNode, RulePolicy, Rules, budget_key},
};

/// The most descriptors of a request, with a limit or without. Their number is the choice of a route. A message of 16 MiB holds eight
/// million empty ones, which took 1.5 GB to answer.
const MAX_DESCRIPTORS: usize = 1_024;

/// A request whose descriptors have been looked up.
#[derive(Debug)]
pub struct ResolvedRequest<'r> {
    pub(crate) request: &'r RateLimitRequest,
    /// One for each descriptor.
    pub(crate) resolutions: Vec<Resolution<'r>>,
    /// The nodes that each descriptor matches; none if it matches no rule.
    pub(crate) paths: Vec<Vec<&'r RuleNode>>,
    members: Vec<Member>,
    is_known_domain: bool,
    ignored_overrides: usize,
    /// Whether all rules are in quota mode, and a descriptor without a limit passes.
    has_free_quota: bool,
}

/// The result of the lookup of one descriptor.
#[derive(Debug)]
pub(crate) enum Resolution<'r> {
    /// No limit applies: there is no rule, or another rule replaces it.
    Unmatched,
    /// Nothing is counted.
    Unlimited(&'r Rule),
    /// A limit of 0: it denies, except a look.
    Blocked {
        rule: Option<&'r Rule>,
        rate: Rate,
        is_over: bool,
        role: Role,
    },
    /// The budget of a member.
    Limited {
        rule: Option<&'r Rule>,
        rate: Rate,
        member: usize,
    },
    /// The budgets of a member under any policy.
    Policy { rule: &'r Rule, member: usize },
}

impl ResolvedRequest<'_> {
    /// The budgets to charge, at most 64.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether the domain has rules.
    pub fn is_known_domain(&self) -> bool {
        self.is_known_domain
    }

    /// The number of limits in the request that could not be applied: their unit is unknown or their period too long.
    pub fn ignored_overrides(&self) -> usize {
        self.ignored_overrides
    }

    /// Whether a limit of 0 has that role and denies, or does not deny because the descriptor is a look.
    fn has_blocked(&self, wanted: Role, denies: bool) -> bool {
        self.resolutions.iter().any(|resolution| {
            matches!(resolution, Resolution::Blocked { is_over, role, .. }
                if *is_over == denies && *role == wanted)
        })
    }

    /// Whether a member in quota mode has budget without a count.
    fn has_free_quota(&self) -> bool {
        self.has_free_quota || self.has_blocked(Role::Any, false)
    }

    /// Whether all members give units back.
    pub fn has_only_credits(&self) -> bool {
        !self.members.is_empty() && self.members.iter().all(Member::is_credit)
    }

    /// Whether readings stand beside requests or looks, which may deny.
    pub(crate) fn is_mixed(&self) -> bool {
        let may_deny = |member: &Member| matches!(member.charge, Charge::Request(_) | Charge::Look);
        self.members.iter().any(Member::is_reading) && self.members.iter().any(may_deny)
    }

    /// The role of a member in the joint hit. A credit and a reading that is recorded in any case never deny.
    pub(crate) fn joint_role(&self, member: &Member, is_recorded: bool) -> JointRole {
        match member.role {
            _ if is_recorded || member.is_credit() => JointRole::Watch,
            Role::Must => JointRole::Must,
            Role::Any if self.has_free_quota() => JointRole::Watch,
            Role::Any => JointRole::Any,
            Role::Watch => JointRole::Watch,
        }
    }

    /// Whether the request passes: every member that must fit does, and one of those of which any must fit.
    pub(crate) fn passes(&self, is_over: impl Fn(usize) -> bool) -> bool {
        let members = |role: Role| {
            let all = self.members.iter().enumerate();
            all.filter(move |(_, member)| member.role == role && !member.is_credit())
                .map(|(index, _)| index)
        };
        let mut quotas = members(Role::Any).peekable();
        let needs_quota = quotas.peek().is_some() || self.has_blocked(Role::Any, true);
        let has_free_quota = self.has_free_quota();
        !self.has_blocked(Role::Must, true)
            && !members(Role::Must).any(&is_over)
            && (!needs_quota || has_free_quota || quotas.any(|index| !is_over(index)))
    }
}

impl Rules {
    /// Finds the rule of each descriptor.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`] for a request that only a wrong configuration of Envoy sends. Bytes of clients never make a
    /// request invalid: Envoy lets a request pass when the service fails.
    pub fn resolve<'r>(
        &'r self,
        request: &'r RateLimitRequest,
    ) -> Result<ResolvedRequest<'r>, InvalidRequest> {
        if request.domain.is_empty() {
            return Err(InvalidRequest::NoDomain);
        }
        if request.descriptors.is_empty() {
            return Err(InvalidRequest::NoDescriptors);
        }
        if request.descriptors.len() > MAX_DESCRIPTORS {
            return Err(InvalidRequest::TooManyDescriptors);
        }
        let domain = self.domain(&request.domain);
        let mut resolved = ResolvedRequest {
            request,
            resolutions: Vec::with_capacity(request.descriptors.len()),
            paths: Vec::with_capacity(request.descriptors.len()),
            members: Vec::with_capacity(request.descriptors.len()),
            is_known_domain: domain.is_some(),
            ignored_overrides: 0,
            has_free_quota: false,
        };
        let Some(domain) = domain else {
            let unmatched = request.descriptors.iter().map(|_| Resolution::Unmatched);
            resolved.resolutions.extend(unmatched);
            let paths = request.descriptors.iter().map(|_| Vec::new());
            resolved.paths.extend(paths);
            return Ok(resolved);
        };
        let found: Vec<MatchedDescriptor<'r>> = request
            .descriptors
            .iter()
            .map(|descriptor| MatchedDescriptor::new(domain, descriptor))
            .collect();
        let rules = found.iter().filter_map(MatchedDescriptor::own_rule);
        let replaced: Vec<&str> = rules
            .flat_map(|rule| rule.replaces.iter().map(String::as_str))
            .collect();
        for found in found {
            resolved.ignored_overrides += usize::from(found.ignores_override);
            let own = found.own_rule();
            let resolution = match own {
                Some(rule) if replaced.contains(&rule.name.as_str()) => Resolution::Unmatched,
                _ => resolved.resolution(self, &found),
            };
            resolved.resolutions.push(resolution);
            resolved.paths.push(found.path);
        }
        if self.is_quota() {
            resolved.apply_quota_mode();
        }
        // A reading beside others has two members in the joint hit.
        let is_mixed = resolved.is_mixed();
        let times = |member: &Member| {
            if is_mixed && member.is_reading() {
                2
            } else {
                1
            }
        };
        if resolved.members.iter().map(times).sum::<usize>() > MAX_JOINT_HITS {
            return Err(InvalidRequest::TooManyDescriptors);
        }
        let entries = |member: &Member| member.tier().max_entries() * times(member) as u64;
        let entries = resolved.members.iter().map(entries).sum();
        if entries > MAX_JOINT_ENTRIES {
            return Err(InvalidRequest::TooManyEntries { entries });
        }
        Ok(resolved)
    }
}

impl<'r> ResolvedRequest<'r> {
    /// Makes every rule one of which any must fit. A rule in shadow mode and a descriptor without a rule always fit.
    fn apply_quota_mode(&mut self) {
        let watches = |role: Role| role == Role::Watch;
        self.has_free_quota = self.members.iter().any(|member| watches(member.role))
            || self.resolutions.iter().any(|resolution| match resolution {
                Resolution::Unmatched => true,
                Resolution::Blocked { role, .. } => watches(*role),
                _ => false,
            });
        let roles = self.members.iter_mut().map(|member| &mut member.role);
        let blocked = self
            .resolutions
            .iter_mut()
            .filter_map(|resolution| match resolution {
                Resolution::Blocked { role, .. } => Some(role),
                _ => None,
            });
        for role in roles.chain(blocked).filter(|role| **role == Role::Must) {
            *role = Role::Any;
        }
    }

    /// The resolution of a descriptor, with a new member if it has a budget.
    fn resolution(&mut self, rules: &Rules, found: &MatchedDescriptor<'r>) -> Resolution<'r> {
        let rule = found.own_rule();
        if let Some(rule) = rule
            && let Effect::Policy(policy) = &rule.effect
        {
            return self.policy_resolution(rule, policy, found.descriptor);
        }
        let charge = Charge::of(found.descriptor, self.request.hits_addend, 1);
        let window = match (&found.rate, rule.map(|rule| &rule.effect)) {
            (Some(rate), _) if rate.requests > 0 => {
                found.override_window(rules, *rate, &self.request.domain)
            }
            (Some(rate), _) | (None, Some(Effect::Blocked(rate))) => {
                return Resolution::Blocked {
                    rule,
                    rate: *rate,
                    is_over: matches!(charge, Charge::Request(_) | Charge::Reading(_)),
                    role: match charge {
                        Charge::Credit(_) => Role::Watch,
                        _ => rule_role(rule),
                    },
                };
            }
            (None, Some(Effect::Limited(window))) => Some(window.clone()),
            (None, Some(Effect::Unlimited)) => {
                return rule.map_or(Resolution::Unmatched, Resolution::Unlimited);
            }
            (None, None | Some(Effect::Policy(_))) => None,
        };
        let key = budget_key(&found.descriptor.entries, &found.path);
        let (Some(window), Some(key)) = (window, key) else {
            return Resolution::Unmatched;
        };
        let charge = match charge {
            Charge::Reading(units) => Charge::Reading(units.min(window.max_reading)),
            other => other,
        };
        self.members.push(Member {
            policy: match charge {
                Charge::Look => window.look,
                _ => window.charge,
            },
            keys: KeySet::new(key),
            charge,
            role: rule_role(rule),
            is_window: true,
        });
        Resolution::Limited {
            rule,
            rate: window.rate,
            member: self.members.len() - 1,
        }
    }

    /// The resolution of a descriptor whose rule has a policy.
    fn policy_resolution(
        &mut self,
        rule: &'r Rule,
        policy: &RulePolicy,
        descriptor: &RateLimitDescriptor,
    ) -> Resolution<'r> {
        let keys = policy.keys(&descriptor.entries);
        let cost = policy.charge.cost().get();
        let charge = Charge::of(descriptor, self.request.hits_addend, cost);
        let (policy, charge) = policy.charged(charge, keys.primary());
        let is_enforced = policy.enforces(keys.primary());
        self.members.push(Member {
            policy: policy.clone(),
            keys,
            charge,
            role: if is_enforced { rule.role } else { Role::Watch },
            is_window: false,
        });
        Resolution::Policy {
            rule,
            member: self.members.len() - 1,
        }
    }
}

/// The role of a rule. A limit of the descriptor itself must be kept.
fn rule_role(rule: Option<&Rule>) -> Role {
    rule.map_or(Role::Must, |rule| rule.role)
}

/// A request that no rules can be applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// The domain is empty.
    NoDomain,
    /// There are no descriptors.
    NoDescriptors,
    /// There are more than 1,024 descriptors, or more than 64 have a limit. A [reading](Charge::Reading) beside others counts
    /// twice.
    TooManyDescriptors,
    /// The policies of the descriptors hold more than [`MAX_JOINT_ENTRIES`] entries of logs and concurrency limits.
    TooManyEntries {
        /// The entries of all descriptors.
        entries: u64,
    },
}

impl fmt::Display for InvalidRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidRequest::NoDomain => "the domain is empty",
            InvalidRequest::NoDescriptors => "there are no descriptors",
            InvalidRequest::TooManyDescriptors => {
                "more than 64 descriptors have a limit, or there are more than 1024"
            }
            InvalidRequest::TooManyEntries { entries } => {
                return write!(
                    f,
                    "the logs and concurrency limits of the descriptors hold up to {entries} entries, more than \
                     {MAX_JOINT_ENTRIES}"
                );
            }
        })
    }
}

impl error::Error for InvalidRequest {}

//! From a request to the members that decide it.

use std::{error, fmt};

use ratelimit_core::{
    KeySet, Policy, Verdict,
    store::{Hit, JointRole, MAX_JOINT_HITS, Overdraft},
};

use crate::{
    charge::Charge,
    policy_name::PolicyName,
    proto::envoy::{
        extensions::common::ratelimit::v3::{
            RateLimitDescriptor, rate_limit_descriptor::RateLimitOverride,
        },
        service::ratelimit::v3::RateLimitRequest,
    },
    rule::{
        Effect, Level, Rate, Role, Rule, RuleNode, RulePolicy, Rules, Unit, Window, budget_key,
    },
};

/// A budget that takes part in the decision about a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Member {
    /// The limits.
    pub policy: Policy,
    /// The keys whose budgets are spent.
    pub keys: KeySet,
    /// The cost.
    pub charge: Charge,
    /// The part in the decision.
    pub role: Role,
    /// Whether the policy is that of a [`Window`], whose headroom is for readings only.
    pub(crate) is_window: bool,
}

impl Member {
    /// The hit of the engine that charges the member. Of a credit it only reads what is left.
    pub fn hit(&self) -> Hit<'_> {
        let mut hit = Hit::for_keys(self.tier(), &self.keys);
        if self.is_window && !matches!(self.charge, Charge::Reading(_)) {
            hit = hit.overdraft(Overdraft::Refused);
        }
        match self.charge {
            Charge::Request(cost) | Charge::Reading(cost) => hit.cost(cost),
            Charge::Look => hit.dry_run(),
            Charge::Credit(_) => hit.cost(0),
        }
    }

    /// The policy of the key's tier.
    pub(crate) fn tier(&self) -> &Policy {
        self.policy.for_key(self.keys.primary())
    }

    /// Whether the verdict means that the limit is exceeded. A credit exceeds nothing.
    pub fn is_over(&self, verdict: &Verdict) -> bool {
        let is_recorded_beyond =
            self.is_reading() && verdict.decision().is_some_and(|decision| decision.is_over);
        is_recorded_beyond || (!self.is_credit() && !verdict.is_allowed())
    }

    /// Whether units are given back. A credit neither denies nor lets anything pass.
    pub(crate) const fn is_credit(&self) -> bool {
        matches!(self.charge, Charge::Credit(_))
    }

    /// Whether the units are recorded also beyond the limit.
    pub(crate) fn is_reading(&self) -> bool {
        matches!(self.charge, Charge::Reading(_))
    }
}

/// A request whose descriptors have been looked up.
#[derive(Debug)]
pub struct ResolvedRequest<'r> {
    pub(crate) request: &'r RateLimitRequest,
    /// One for each descriptor.
    pub(crate) resolutions: Vec<Resolution<'r>>,
    members: Vec<Member>,
    is_known_domain: bool,
    ignored_overrides: usize,
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
            Role::Any if self.has_blocked(Role::Any, false) => JointRole::Watch,
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
        let has_free_quota = self.has_blocked(Role::Any, false);
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
        let domain = self.domain(&request.domain);
        let mut resolved = ResolvedRequest {
            request,
            resolutions: Vec::with_capacity(request.descriptors.len()),
            members: Vec::with_capacity(request.descriptors.len()),
            is_known_domain: domain.is_some(),
            ignored_overrides: 0,
        };
        let Some(domain) = domain else {
            let unmatched = request.descriptors.iter().map(|_| Resolution::Unmatched);
            resolved.resolutions.extend(unmatched);
            return Ok(resolved);
        };
        let found: Vec<Found<'r>> = request
            .descriptors
            .iter()
            .map(|descriptor| Found::new(domain, descriptor))
            .collect();
        let rules = found.iter().filter_map(Found::own_rule);
        let replaced: Vec<&str> = rules
            .flat_map(|rule| rule.replaces.iter().map(String::as_str))
            .collect();
        for found in &found {
            resolved.ignored_overrides += usize::from(found.ignores_override);
            let own = found.own_rule();
            let resolution = match own {
                Some(rule) if replaced.contains(&rule.name.as_str()) => Resolution::Unmatched,
                _ => resolved.resolution(self, found),
            };
            resolved.resolutions.push(resolution);
        }
        // A reading beside others has two members in the joint hit.
        let readings = resolved.members.iter().filter(|member| member.is_reading());
        let extra = if resolved.is_mixed() {
            readings.count()
        } else {
            0
        };
        if resolved.members.len() + extra > MAX_JOINT_HITS {
            return Err(InvalidRequest::TooManyDescriptors);
        }
        Ok(resolved)
    }
}

/// The rule of a descriptor, and the limit that replaces the rule's own.
struct Found<'r> {
    descriptor: &'r RateLimitDescriptor,
    rule: Option<&'r Rule>,
    path: Vec<&'r RuleNode>,
    rate: Option<Rate>,
    /// Whether the descriptor has a limit that cannot be applied.
    ignores_override: bool,
}

impl<'r> Found<'r> {
    fn new(domain: &'r Level, descriptor: &'r RateLimitDescriptor) -> Found<'r> {
        let path = domain.find(&descriptor.entries).unwrap_or_default();
        let rate = descriptor.limit.as_ref().map(override_rate);
        Found {
            descriptor,
            rule: path.last().and_then(|node| node.rule.as_ref()),
            path,
            ignores_override: rate == Some(None),
            rate: rate.flatten(),
        }
    }

    /// The rule, unless a limit of the descriptor takes its place.
    fn own_rule(&self) -> Option<&'r Rule> {
        self.rule.filter(|_| self.rate.is_none())
    }

    /// The policies of the descriptor's own limit: those of the rule if the rate is equal, else cached or new ones.
    /// Windows of the same length share their counts.
    fn override_window(&self, rules: &Rules, rate: Rate, domain: &str) -> Option<Window> {
        let name = match self.rule {
            None => PolicyName::domain(domain).with_period(rate.period()),
            Some(rule) => match &rule.effect {
                Effect::Limited(window) if window.rate == rate => return Some(window.clone()),
                Effect::Limited(window) if window.rate.period() == rate.period() => {
                    rule.policy_name.clone()
                }
                _ => rule.policy_name.with_period(rate.period()),
            },
        };
        rules.override_window(name.bounded(), rate)
    }
}

/// The limit of a descriptor; `None` if it cannot be applied.
fn override_rate(limit: &RateLimitOverride) -> Option<Rate> {
    let rate = Rate {
        requests: limit.requests_per_unit,
        unit: Unit::from_number(limit.unit)?,
        multiplier: limit.unit_multiplier.unwrap_or(1),
    };
    rate.is_countable().then_some(rate)
}

impl<'r> ResolvedRequest<'r> {
    /// The resolution of a descriptor, with a new member if it has a budget.
    fn resolution(&mut self, rules: &Rules, found: &Found<'r>) -> Resolution<'r> {
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
    /// More than 64 descriptors have a limit. A [reading](Charge::Reading) beside others counts twice.
    TooManyDescriptors,
}

impl fmt::Display for InvalidRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidRequest::NoDomain => "the domain is empty",
            InvalidRequest::NoDescriptors => "there are no descriptors",
            InvalidRequest::TooManyDescriptors => "more than 64 descriptors have a limit",
        })
    }
}

impl error::Error for InvalidRequest {}

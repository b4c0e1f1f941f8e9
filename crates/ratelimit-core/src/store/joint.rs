//! Joint hits: hits under several policies that are decided in one step, all or nothing.

use std::{error::Error, fmt};

use crate::store::hit::Hit;
use crate::{
    decision::{Decision, LimitDecision},
    time::Timestamp,
};

/// The most members of one joint hit. A Redis server serves no other client while it decides them.
///
/// ```
/// use ratelimit_core::{Key, Limiter, Policy, store::{Hit, JointHit, MAX_JOINT_HITS}};
///
/// let limiter = Limiter::in_memory();
/// let (policy, alice) = (Policy::parse("api", "100/min")?, Key::new("alice")?);
/// let members = vec![JointHit::new(Hit::new(&policy, &alice)); MAX_JOINT_HITS + 1];
/// assert!(limiter.check_joint(&members).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub const MAX_JOINT_HITS: usize = 64;

/// The most entries that a joint hit may read: the limits of the logs and the slots of the concurrency limits of all its
/// members, added up.
///
/// A Redis server reads and writes all entries of a state, and serves no other client meanwhile.
///
/// ```
/// use ratelimit_core::{Key, Limiter, Policy, store::{Hit, InvalidJointHit, JointHit}};
///
/// let limiter = Limiter::in_memory();
/// let (policy, alice) = (Policy::parse("api", "sliding_window_log 10000/d")?, Key::new("alice")?);
/// let members = [JointHit::new(Hit::new(&policy, &alice)); 11];
/// assert!(limiter.check_joint(&members[..10]).is_ok());
/// let refused = limiter.check_joint(&members).unwrap_err();
/// assert_eq!(refused, InvalidJointHit::Entries { entries: 110_000 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub const MAX_JOINT_ENTRIES: u64 = 100_000;

/// One member of a joint hit: a hit under its own policy, and its role.
///
/// [`Limiter::check_joint`](crate::Limiter::check_joint) decides the members together. The joint hit passes if every
/// [`Must`](JointRole::Must) fits and, where there are members of the role [`Any`](JointRole::Any), at least one of
/// them. Then every member that fits is charged; otherwise none is.
///
/// - Members are decided by role, `Must` before `Any` before `Watch`, and in their order within a role. A member on
///   the same budget as an earlier one is decided behind its charge, so both must fit.
/// - A dry run takes part in the decision by its role, and is never charged. A hit of cost 0 always fits.
/// - A limit that counts denied hits records a hit that its own policy denies.
///
/// ```
/// use ratelimit_core::{Key, Policy, store::{Hit, JointHit, JointRole}};
///
/// let policy = Policy::parse("api", "100/min")?;
/// let key = Key::new("alice")?;
/// let member = JointHit::new(Hit::new(&policy, &key).cost(3)).role(JointRole::Watch);
/// assert_eq!(member.hit.cost, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct JointHit<'a> {
    /// The policy, the keys and the cost of the member.
    pub hit: Hit<'a>,
    /// How the member decides on the joint hit.
    pub role: JointRole,
}

/// How a member decides on a joint hit.
///
/// | role | the joint hit is denied if | the member is charged if |
/// |---|---|---|
/// | `Must` | this member does not fit | the joint hit passes |
/// | `Any` | no member of this role fits | the joint hit passes, and the member fits |
/// | `Watch` | never | the joint hit passes, and the member fits |
///
/// The order of the variants is the order in which members are decided, so a member that only watches never takes the
/// last unit from one that must fit.
///
/// ```
/// use ratelimit_core::{Key, Limiter, Policy, store::{Hit, JointHit, JointRole}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// // A request needs a unit of the free quota or of the paid one; it is charged to each that has one.
/// let (free, paid) = (Policy::parse("free", "1/d")?, Policy::parse("paid", "2/d")?);
/// let (limiter, alice) = (Limiter::in_memory(), Key::new("alice")?);
/// let quotas = [&free, &paid].map(|quota| JointHit::new(Hit::new(quota, &alice)).role(JointRole::Any));
///
/// assert!(limiter.check_joint(&quotas)?.await.is_allowed);
/// let second = limiter.check_joint(&quotas)?.await;
/// assert!(second.is_allowed);
/// assert!(!second.members[0].is_charged && second.members[1].is_charged);
/// assert!(!limiter.check_joint(&quotas)?.await.is_allowed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum JointRole {
    /// Every member of this role must fit.
    #[default]
    Must,
    /// One member of this role must fit, if there are any.
    Any,
    /// Never denies the joint hit, as a policy in shadow mode.
    #[doc(alias = "shadow")]
    Watch,
}

impl<'a> JointHit<'a> {
    /// Checks that a joint hit has members, and is not too much work for one call.
    ///
    /// # Errors
    ///
    /// [`InvalidJointHit`]
    pub(crate) fn validate(members: &[JointHit<'_>]) -> Result<(), InvalidJointHit> {
        let count = members.len();
        if count == 0 || count > MAX_JOINT_HITS {
            return Err(InvalidJointHit::Count { members: count });
        }
        let entries = members.iter().map(|member| member.hit.policy.max_entries());
        let entries = entries.sum();
        if entries > MAX_JOINT_ENTRIES {
            return Err(InvalidJointHit::Entries { entries });
        }
        Ok(())
    }

    /// A member that must fit.
    pub const fn new(hit: Hit<'a>) -> JointHit<'a> {
        JointHit {
            hit,
            role: JointRole::Must,
        }
    }

    /// Returns the member with another role.
    #[must_use]
    pub const fn role(mut self, role: JointRole) -> JointHit<'a> {
        self.role = role;
        self
    }

    /// The indices of the members in the order in which they are decided.
    ///
    /// All stores use it, and the local fallback too, so that members on one budget see the same charges everywhere.
    pub(crate) fn order(members: &[JointHit<'_>]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..members.len()).collect();
        // Stable: members of one role stay in their order.
        order.sort_by_key(|&index| members[index].role);
        order
    }
}

/// Whether a joint hit passes, from the role of each member and whether it fits.
///
/// - Without members of the role `Any`, that part of the condition holds.
/// - A joint hit that only watches always passes.
/// - `lua/check.lua` has the same condition behind its members.
pub(crate) fn passes(members: impl Iterator<Item = (JointRole, bool)>) -> bool {
    let (mut must, mut any) = (true, None);
    for (role, fits) in members {
        match role {
            JointRole::Must => must &= fits,
            JointRole::Any => any = Some(any.unwrap_or(false) || fits),
            JointRole::Watch => {}
        }
    }
    must && any.unwrap_or(true)
}

/// The decision of a member that was not read: its limits are reported as unused.
pub(crate) fn unread(hit: Hit<'_>, now: Timestamp) -> Decision {
    let limits = hit.policy.limits().iter();
    let limits = limits.map(|limit| LimitDecision::unread(limit.capacity()));
    Decision::from_limits(now, limits).with_enforcement(hit.policy.enforces(hit.key))
}

/// A joint hit has no member, or is too much work for one call.
///
/// The members are the choice of the program, so this is an error of the caller and not a denial, and no failure mode
/// decides it. Nothing was decided and nothing charged.
///
/// ```
/// use ratelimit_core::Limiter;
///
/// let error = Limiter::in_memory().check_joint(&[]).unwrap_err();
/// assert_eq!(error.to_string(), "a joint hit has 1 to 64 members, not 0");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidJointHit {
    /// There are no members, or more than [`MAX_JOINT_HITS`].
    Count {
        /// The number of members.
        members: usize,
    },
    /// The members read more than [`MAX_JOINT_ENTRIES`] entries of logs and concurrency limits.
    Entries {
        /// The entries of all members.
        entries: u64,
    },
}

impl fmt::Display for InvalidJointHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidJointHit::Count { members } => write!(
                f,
                "a joint hit has 1 to {MAX_JOINT_HITS} members, not {members}"
            ),
            InvalidJointHit::Entries { entries } => write!(
                f,
                "the logs and concurrency limits of these hits hold up to {entries} entries, more than the \
                 {MAX_JOINT_ENTRIES} that are decided in one step: check fewer together, or lower the limits"
            ),
        }
    }
}

impl Error for InvalidJointHit {}

/// The source of the error of a store without [`Store::hit_joint`](crate::store::Store::hit_joint).
#[derive(Debug)]
pub(crate) struct CannotJoin;

impl fmt::Display for CannotJoin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this store decides no joint hits")
    }
}

impl Error for CannotJoin {}

#[cfg(test)]
mod tests {
    use super::JointRole::{Any, Must, Watch};
    use super::*;

    #[test]
    fn every_policy_may_be_a_member() {
        let longest = ["sliding_window_log 10000/d"; 8].join("; ");
        let policy = crate::Policy::parse("p", &longest).unwrap();
        let key = crate::Key::new("alice").unwrap();
        let member = JointHit::new(Hit::new(&policy, &key));

        assert_eq!(JointHit::validate(&[member]), Ok(()));
        let entries = 160_000;
        let refused = Err(InvalidJointHit::Entries { entries });
        assert_eq!(JointHit::validate(&[member, member]), refused);
    }

    #[test]
    fn a_joint_hit_passes_when_all_must_fit_and_one_of_any() {
        for (members, expected) in [
            (vec![(Must, true), (Must, true)], true),
            (vec![(Must, true), (Must, false)], false),
            (vec![(Any, false), (Any, true)], true),
            (vec![(Any, false), (Any, false)], false),
            (vec![(Must, false), (Any, true)], false),
            (vec![(Must, true), (Any, false)], false),
            (vec![(Watch, false)], true),
            (vec![(Must, true), (Watch, false)], true),
        ] {
            assert_eq!(passes(members.iter().copied()), expected, "{members:?}");
        }
    }
}

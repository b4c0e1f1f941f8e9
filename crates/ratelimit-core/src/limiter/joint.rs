//! Joint hits: hits under several policies that are decided together, and the future of their check.
//!
//! - A member that the deny cache denies is not sent. If the joint hit cannot pass without
//!   it, nothing is sent.
//! - The store's answer is recorded for each member, as for a single check:
//!
//! | member | metrics, offenders | deny cache | local budgets |
//! |---|---|---|---|
//! | charged | counted as allowed | invalidated | follow the reply |
//! | does not fit | counted as denied | caches the denial, unless another member shares a budget | follow the reply |
//! | fits, and the joint hit is denied | not counted | unchanged | follow the reply |
//! | not sent, denied | counted as denied | unchanged | unchanged |
//! | not sent, because another member was denied | not counted | unchanged | unchanged |
//!
//! - Where the store does not answer, each member is decided by the failure mode of its policy. Local charges are made
//!   in order, and refunded if the joint hit does not pass.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use crate::limiter::{
    JointVerdict, Limiter, MemberVerdict, Verdict,
    check::{poll_cooperate, record_span},
    deny_cache::Lookup,
    reservation::receipt_of,
    unchecked::InFlight,
    verdict::Answer,
};
use crate::{
    budget::Adjustment,
    decision::{Charged, RefundMarks},
    limit::Limit,
    metrics,
    store::{
        Hit, InvalidJointHit, JointHit, JointRole, OwnedHit, StoreError, StoreFuture, passes,
        unread,
    },
    time::Timestamp,
};

/// A check of a joint hit in flight. Awaiting it gives the [`JointVerdict`].
///
/// Dropping it is as dropping a [`Check`](crate::Check): a memory store has decided already; with a Redis store, charges
/// stay once the call was sent, and slots of concurrency limits are released.
///
/// The future borrows nothing of the members:
///
/// ```
/// use ratelimit_core::{JointCheck, Key, Limiter, Policy, store::{Hit, InvalidJointHit, JointHit}};
///
/// fn start(limiter: &Limiter, policy: &Policy, keys: &[Key]) -> Result<JointCheck, InvalidJointHit> {
///     let members: Vec<JointHit<'_>> =
///         keys.iter().map(|key| JointHit::new(Hit::new(policy, key))).collect();
///     limiter.check_joint(&members)
/// }
/// ```
#[must_use = "a check is made when it is awaited"]
pub struct JointCheck(JointState);

/// A joint hit before and after the answer of the store.
enum JointState {
    Decided(Option<JointVerdict>),
    Pending(Box<PendingJoint>),
}

/// A member with all that is needed when the store has answered.
struct PendingMember {
    hit: OwnedHit,
    role: JointRole,
    /// The versions of the budgets in the deny cache, if a denial of this member may be cached.
    lookup: Option<Lookup>,
    /// The denial of a member that is not sent.
    denied: Option<Verdict>,
}

/// A joint hit whose store has not answered yet.
struct PendingJoint {
    answers: StoreFuture<Vec<Charged>>,
    started: Instant,
    /// The units of its members.
    in_flight: Vec<InFlight>,
    limiter: Limiter,
    members: Vec<PendingMember>,
}

impl Limiter {
    /// Decides hits under several policies in one step: all are charged, or none.
    ///
    /// - The joint hit passes if every member of the role `Must` fits, and one of the role `Any` if there are such.
    ///   Then all members that fit are charged. Otherwise none is.
    /// - A policy in shadow mode for the key of its member, or with a share of keys that is not enforced, has the role
    ///   `Watch`.
    /// - Members on one budget are decided one behind the other. If the sum of their costs is above the limit, the
    ///   joint hit is denied each time, with the wait of a single cost.
    /// - Members are decided as they are: tier, cost, mode and overdraft are those of the hit. Units that were
    ///   prefetched are not used.
    /// - In a Redis cluster, members in several hash slots are charged one after another; a denial refunds the charges
    ///   before it.
    /// - A member that fits is counted by metrics if the joint hit passes, one that does not always.
    ///
    /// ```
    /// use ratelimit_core::{Key, Limiter, Policy, store::{Hit, JointHit}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let limiter = Limiter::in_memory();
    /// let (user, route) = (Policy::parse("user", "5/min")?, Policy::parse("route", "1/min")?);
    /// let (alice, search) = (Key::new("alice")?, Key::new("/search")?);
    /// let members = [
    ///     JointHit::new(Hit::new(&user, &alice)),
    ///     JointHit::new(Hit::new(&route, &search)),
    /// ];
    ///
    /// assert!(limiter.check_joint(&members)?.await.is_allowed);
    /// let second = limiter.check_joint(&members)?.await;
    /// assert!(!second.is_allowed);
    /// assert_eq!(second.members[0].verdict.decision().unwrap().remaining, 4);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidJointHit`] without members, with more than [`MAX_JOINT_HITS`](crate::store::MAX_JOINT_HITS), and with more
    /// than [`MAX_JOINT_ENTRIES`](crate::store::MAX_JOINT_ENTRIES) entries of logs and concurrency limits.
    pub fn check_joint(&self, members: &[JointHit<'_>]) -> Result<JointCheck, InvalidJointHit> {
        JointHit::validate(members)?;
        let enforced = members.iter().map(|member| JointHit {
            hit: member.hit.with_slot_id(),
            role: if member.hit.policy.enforces(member.hit.key) {
                member.role
            } else {
                JointRole::Watch
            },
        });
        Ok(JointCheck::new(self, &enforced.collect::<Vec<_>>()))
    }

    /// Denies a member without a call, by the deny cache.
    fn deny_unsent(&self, hit: Hit<'_>, lookup: Option<Lookup>) -> Option<Verdict> {
        let denied = lookup.and_then(|lookup| self.shared.deny_cache.lookup(hit, lookup))?;
        hit.policy.metrics().count_deny_cache_hit();
        Some(self.verdict(hit, Ok(denied.into())).verdict)
    }

    /// Remembers the decisions of the members that were sent, for local decisions.
    ///
    /// If the joint hit does not pass, nothing was charged, and the numbers of a member that was denied behind the charge of
    /// another are not those of the store.
    fn record_joint_reply(
        &self,
        sent: &[JointHit<'_>],
        members: &[PendingMember],
        answers: &[Charged],
        received: Instant,
    ) {
        let mut fits = answers.iter().map(|charged| charged.is_allowed());
        let fits = members.iter().map(|member| {
            let is_sent = member.denied.is_none();
            (member.role, is_sent && fits.next().unwrap_or(false))
        });
        let is_charged = passes(fits);
        for index in JointHit::order(sent) {
            let (hit, decision) = (sent[index].hit, &answers[index].decision);
            if is_charged {
                self.record_reply(&hit, decision, received);
            } else if decision.is_allowed() || shares_no_budget(sent, hit) {
                self.record_reply(&hit.dry_run(), decision, received);
            }
        }
    }

    /// Decides members by their failure modes. Local charges are made one after another; if the joint hit does not pass,
    /// they are refunded.
    fn unchecked_joint(&self, members: &[JointHit<'_>], error: &StoreError) -> Vec<Answer> {
        let decide = |hit: Hit<'_>| self.unchecked(hit, hit.policy.enforces(hit.key), error);
        let fits = |answer: &Answer| answer.verdict.fits();
        let mut answers: Vec<Option<Answer>> = vec![None; members.len()];
        for index in JointHit::order(members) {
            let answer = decide(members[index].hit);
            let is_denied = members[index].role == JointRole::Must && !fits(&answer);
            answers[index] = Some(answer);
            if is_denied {
                break;
            }
        }
        let roles = members.iter().map(|member| member.role);
        let known = answers
            .iter()
            .map(|answer| answer.as_ref().is_some_and(fits));
        if !passes(roles.zip(known)) {
            for (member, answer) in members.iter().zip(&answers) {
                let charged = answer.as_ref().filter(|answer| fits(answer));
                let receipt = charged
                    .and_then(|charged| receipt_of(member.hit, &charged.verdict, &charged.marks));
                if let Some(receipt) = receipt {
                    let units = receipt.cost();
                    drop(self.adjust(&receipt, Adjustment::Refund { units }));
                    if !error.charged_nothing() {
                        self.shared.fallback.refunded(&receipt);
                    }
                }
            }
            for (member, answer) in members.iter().zip(&mut answers) {
                if answer.as_ref().is_none_or(fits) {
                    *answer = Some(decide(member.hit.dry_run()));
                }
            }
        }
        answers.into_iter().flatten().collect()
    }
}

impl JointCheck {
    /// Starts the check of members whose roles are known. A memory store has decided when it returns.
    fn new(limiter: &Limiter, members: &[JointHit<'_>]) -> JointCheck {
        let started = metrics::sample_start();
        let deny_cache = &limiter.shared.deny_cache;
        // A cached answer would leave out the denials that such limits record.
        let mut limits = members.iter().flat_map(|member| member.hit.policy.limits());
        let may_skip = !limits.any(Limit::records_denials);
        let pending = members.iter().map(|member| {
            let hit = member.hit;
            let lookup = deny_cache.start_lookup(hit).filter(|_| may_skip);
            PendingMember {
                hit: OwnedHit::new(hit),
                role: member.role,
                lookup: lookup.filter(|_| shares_no_budget(members, hit)),
                denied: limiter.deny_unsent(hit, lookup),
            }
        });
        let pending: Vec<PendingMember> = pending.collect();
        let can_pass = pending
            .iter()
            .map(|member| (member.role, member.denied.is_none()));
        if !passes(can_pass) {
            let verdict = JointVerdict::unsent(pending);
            return JointCheck(JointState::Decided(Some(verdict)));
        }
        let sent: Vec<JointHit<'_>> = sent(&pending).collect();
        if sent.is_empty() {
            // All members only watch, and all are denied.
            let verdict = JointVerdict::new(limiter, &pending, Ok(Vec::new()), None);
            return JointCheck(JointState::Decided(Some(verdict)));
        }
        match limiter.send_joint(&sent).try_ready() {
            Ok(answers) => {
                let span = started.map(|started| started.elapsed());
                let verdict = JointVerdict::new(limiter, &pending, answers, span);
                JointCheck(JointState::Decided(Some(verdict)))
            }
            Err(answers) => {
                deny_cache.enable();
                JointCheck(JointState::Pending(Box::new(PendingJoint {
                    answers,
                    started: Instant::now(),
                    in_flight: sent
                        .iter()
                        .filter_map(|member| limiter.count_in_flight(member.hit))
                        .collect(),
                    limiter: limiter.clone(),
                    members: pending,
                })))
            }
        }
    }
}

impl JointVerdict {
    /// The verdict of a joint hit that was sent. Counts the members, and updates the deny cache and the local budgets.
    fn new(
        limiter: &Limiter,
        members: &[PendingMember],
        answers: Result<Vec<Charged>, StoreError>,
        span: Option<Duration>,
    ) -> JointVerdict {
        let received = Instant::now();
        let sent: Vec<JointHit<'_>> = sent(members).collect();
        let mut answers = match answers {
            Ok(answers) => {
                limiter.record_joint_reply(&sent, members, &answers, received);
                let answers = answers.into_iter().zip(&sent);
                answers
                    .map(|(charged, member)| limiter.enforced(member.hit, Ok(charged)))
                    .collect()
            }
            Err(error) => limiter.unchecked_joint(&sent, &error),
        }
        .into_iter();
        let answers: Vec<(Answer, &PendingMember)> = members
            .iter()
            .filter_map(|member| {
                let denied = member.denied.clone().map(Answer::of_denial);
                let answer = denied.or_else(|| answers.next());
                answer.map(|answer| (answer, member))
            })
            .collect();
        let roles = answers
            .iter()
            .map(|(answer, member)| (member.role, answer.verdict.fits()));
        let is_allowed = passes(roles);
        let members = answers.into_iter().map(|(answer, member)| {
            let Answer { verdict, marks } = answer;
            let hit = member.hit.as_hit();
            let is_decisive = is_allowed || !verdict.fits();
            if member.denied.is_none() && is_decisive && !hit.is_read_only() {
                limiter.record_verdict(&hit, &verdict);
                if let Verdict::Checked(decision) = &verdict {
                    let deny_cache = &limiter.shared.deny_cache;
                    deny_cache.record(hit, member.lookup, decision);
                }
            }
            if let Some(span) = span {
                record_span(hit, span);
            }
            MemberVerdict {
                is_charged: is_allowed
                    && verdict.fits()
                    && !hit.is_read_only()
                    && verdict.decision().is_some(),
                verdict,
                marks,
            }
        });
        JointVerdict {
            is_allowed,
            members: members.collect(),
        }
    }

    /// The verdict of a joint hit that cannot pass, whatever the store would answer. The members that were not denied
    /// are not read.
    fn unsent(members: Vec<PendingMember>) -> JointVerdict {
        let decided = members.iter().find_map(|member| member.denied.as_ref());
        let decided = decided.and_then(Verdict::decision);
        let now = decided.map_or_else(Timestamp::default, |denied| denied.now);
        let members = members.into_iter().map(|member| MemberVerdict {
            verdict: member
                .denied
                .unwrap_or_else(|| Verdict::Checked(unread(member.hit.as_hit(), now))),
            is_charged: false,
            marks: RefundMarks::new(),
        });
        JointVerdict {
            is_allowed: false,
            members: members.collect(),
        }
    }
}

/// The members that were not denied without a call.
fn sent(members: &[PendingMember]) -> impl Iterator<Item = JointHit<'_>> {
    let sent = members.iter().filter(|member| member.denied.is_none());
    sent.map(|member| JointHit::new(member.hit.as_hit()).role(member.role))
}

/// Whether no other member spends from a budget of `hit`. A denial behind another member's charge is not cached: the
/// same hit may pass alone.
fn shares_no_budget(members: &[JointHit<'_>], hit: Hit<'_>) -> bool {
    let shares = |member: &&JointHit<'_>| {
        let mut budgets = member.hit.budget_names();
        budgets.any(|budget| hit.budget_names().any(|own| own == budget))
    };
    members.iter().filter(shares).count() == 1
}

impl Future for JointCheck {
    type Output = JointVerdict;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<JointVerdict> {
        let pending = match &mut self.0 {
            JointState::Decided(verdict) => {
                let mut members = verdict.iter().flat_map(|verdict| &verdict.members);
                if members.any(|member| matches!(member.verdict, Verdict::Unchecked { .. })) {
                    ready!(poll_cooperate(cx));
                }
                return Poll::Ready(verdict.take().expect("polled after completion"));
            }
            JointState::Pending(pending) => pending,
        };
        let answers = ready!(Pin::new(&mut pending.answers).poll(cx));
        let span = Some(pending.started.elapsed());
        pending.in_flight.clear();
        let verdict = JointVerdict::new(&pending.limiter, &pending.members, answers, span);
        Poll::Ready(verdict)
    }
}

impl fmt::Debug for JointCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            JointState::Decided(_) => "JointCheck::Decided",
            JointState::Pending(_) => "JointCheck::Pending",
        })
    }
}

//! Limits of one policy whose keys live on different nodes of a cluster.
//!
//! They cannot be decided in one call. They are asked in the order in which they are written; at the first denial
//! what was charged before is given back, and the rest is only looked at. Limits that remember denied hits are
//! told of it, wherever they are. A crash in between leaves charges behind, never credit.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::store::redis::{
    call,
    command::{
        check::{CheckCommand, Scope},
        reply::{CheckReply, LimitReplies, LimitReply},
    },
    execute::undoable::UndoableHit,
};
use crate::{
    budget::Adjustment,
    decision::{Decision, LimitDecision, Outcome, RefundMark},
    policy::HitMode,
    store::{contract::StoreError, hit::Hit, receipt::Receipt},
};

/// What one key is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupMode {
    /// To charge the hit, if it fits.
    Charge,
    /// Whether it would fit.
    Peek,
    /// To remember that another key denied it.
    Deny,
}

/// What some keys were charged, by their numbers.
type ChargedGroups = Vec<(usize, Option<Receipt>)>;

impl UndoableHit {
    /// Decides the hit key by key.
    pub(in crate::store::redis) async fn check_across_slots(
        self: &Arc<UndoableHit>,
    ) -> Result<Decision, StoreError> {
        let is_meant = self.pending.command.charges() && self.hit().can_ever_fit();
        let mut steps = LimitReplies::new();
        let mut charged = ChargedGroups::new();
        let mut denied_by = None;
        let mut now = None;
        for number in 0..self.pending.names.len() {
            let mode = match denied_by {
                _ if !is_meant => GroupMode::Peek,
                None => GroupMode::Charge,
                Some(_) if self.counts_denied(number) => GroupMode::Deny,
                Some(_) => GroupMode::Peek,
            };
            let reply = if denied_by.is_none() {
                self.check_group(number, mode).await
            } else {
                let deadline = self.early_deadline();
                self.check_group_until(number, mode, deadline).await
            };
            let reply = match reply {
                Ok(reply) => reply,
                // The denial stands, whether or not this key can be asked.
                Err(_) if denied_by.is_some() => {
                    steps.extend(self.unknown_replies(number));
                    continue;
                }
                Err(error) => {
                    self.release_if_unknown(&error, Scope::Group(number));
                    self.spawn_refund(charged);
                    return Err(error);
                }
            };
            now = Some(reply.now);
            if mode == GroupMode::Charge {
                if reply.is_allowed {
                    charged.push((number, self.group_receipt(&reply)));
                } else {
                    denied_by = Some(number);
                }
            }
            steps.extend(reply.limits);
        }
        let now = now.ok_or(StoreError::TimedOut)?;
        if let Some(denied_by) = denied_by {
            steps = self.deny(steps, charged, denied_by).await;
        }
        let is_allowed = steps.iter().all(|step| step.decision.outcome.is_allowed());
        let reply = CheckReply {
            now,
            is_allowed,
            limits: steps,
        };
        Ok(reply.decision())
    }

    /// Gives back what earlier keys were charged, and lets those that remember denials know.
    ///
    /// That is done in a task of its own: the denial stands, however long giving back takes.
    async fn deny(
        self: &Arc<UndoableHit>,
        steps: LimitReplies,
        charged: ChargedGroups,
        denied_by: usize,
    ) -> LimitReplies {
        let hit = Arc::clone(self);
        let (sender, reply) = tokio::sync::oneshot::channel();
        self.spawn_give_back(async move {
            hit.refund_groups(charged).await;
            let mut reply = LimitReplies::new();
            for number in (0..denied_by).filter(|&number| hit.counts_denied(number)) {
                let deadline = hit.executor.late_deadline();
                let denied = hit.check_group_until(number, GroupMode::Deny, deadline);
                match denied.await {
                    Ok(scope) => reply.extend(scope.limits),
                    Err(error) => hit.executor.router.log().log_kept_charge(&error),
                }
            }
            let _ = sender.send(reply);
        });
        let reply = tokio::time::timeout_at(self.early_deadline().into(), reply).await;
        let reply = reply.ok().and_then(Result::ok).unwrap_or_default();
        let place_of = |step: &LimitReply| reply.iter().position(|reply| reply.index == step.index);
        let denied_places = self.limit_indices(denied_by..self.pending.names.len());
        let settled = steps.into_iter().map(|step| match place_of(&step) {
            Some(index) => reply[index],
            None if denied_places.contains(&step.index) => step,
            None => step.refunded(),
        });
        settled.collect()
    }

    /// Somewhat earlier than the caller gives up, so that a denial reaches it.
    fn early_deadline(&self) -> Instant {
        let early = self.executor.timeouts.timeout / 5;
        self.deadline.checked_sub(early).unwrap_or(self.deadline)
    }

    /// What stands in a denial for the limits of a key that cannot be asked: unused limits.
    fn unknown_replies(&self, number: usize) -> impl Iterator<Item = LimitReply> {
        let group = &self.pending.command.policy.groups()[number];
        let delay = Duration::ZERO;
        group.limits.iter().map(move |effective| {
            let unused = LimitDecision::new(Outcome::Allowed { delay }, effective.limit.capacity());
            LimitReply {
                index: effective.index,
                decision: unused,
                uncharged: unused,
            }
        })
    }

    /// The places of the limits of some keys in their policy.
    fn limit_indices(&self, numbers: std::ops::Range<usize>) -> Vec<usize> {
        let groups = &self.pending.command.policy.groups()[numbers];
        let limits = groups.iter().flat_map(|group| &group.limits);
        limits.map(|effective| effective.index).collect()
    }

    /// Whether limits of a key remember denied hits.
    fn counts_denied(&self, number: usize) -> bool {
        let group = &self.pending.command.policy.groups()[number];
        group
            .limits
            .iter()
            .any(|effective| effective.limit.records_denials())
    }

    /// The command for the limits of one key.
    fn group_command(&self, number: usize, mode: GroupMode) -> CheckCommand {
        let mut command = self.pending.command.clone();
        command.scope = Scope::Group(number);
        command.is_denied = mode == GroupMode::Deny;
        if mode == GroupMode::Peek {
            command.params.mode = HitMode::DryRun;
        }
        command
    }

    /// Asks one key within the hit's time.
    async fn check_group(&self, number: usize, mode: GroupMode) -> Result<CheckReply, StoreError> {
        let command = self.group_command(number, mode);
        let names = &self.pending.names[number..=number];
        let route = self.executor.route(&names[0])?;
        let reply = call::send(
            &command,
            names,
            &self.executor.router,
            route.clone(),
            self.deadline,
        );
        self.with_deadline(&route, reply).await
    }

    /// Asks one key within another time. The breaker does not count it: the time may be short.
    async fn check_group_until(
        &self,
        number: usize,
        mode: GroupMode,
        deadline: Instant,
    ) -> Result<CheckReply, StoreError> {
        let command = self.group_command(number, mode);
        let names = &self.pending.names[number..=number];
        let route = self.executor.route(&names[0])?;
        let reply = call::send(&command, names, &self.executor.router, route, deadline);
        let reply = tokio::time::timeout_at(deadline.into(), reply).await;
        reply.unwrap_or(Err(StoreError::TimedOut))
    }

    /// Gives back what was charged before a key failed.
    fn spawn_refund(self: &Arc<UndoableHit>, charged: ChargedGroups) {
        let hit = Arc::clone(self);
        self.spawn_give_back(async move { hit.refund_groups(charged).await });
    }

    /// Gives back what some keys were charged; what cannot be given back stays charged.
    async fn refund_groups(&self, charged: ChargedGroups) {
        for (number, receipt) in charged {
            let Some(receipt) = receipt else { continue };
            let change = Adjustment::Refund {
                units: receipt.cost(),
            };
            let scope = Scope::Group(number);
            self.executor.give_back(&receipt, scope, change).await;
        }
    }

    /// A receipt for what one key was charged.
    fn group_receipt(&self, reply: &CheckReply) -> Option<Receipt> {
        let hit: Hit<'_> = self.hit();
        let mut marks = vec![RefundMark::NONE; hit.policy.limits().len()];
        for step in &reply.limits {
            marks[step.index] = step.refund_mark();
        }
        Receipt::from_marks(hit, reply.now, marks.into_iter())
    }
}

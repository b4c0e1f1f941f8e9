//! Policies whose keys are in several hash slots of a cluster, which one call cannot decide.
//!
//! - The keys are charged one after another, in the order of the limits.
//! - At the first denial the charges before it are refunded, and the remaining keys are only read.
//! - Limits that count denied hits record the denial, on whichever node they are.
//! - A crash in between leaves charges behind, never credit.

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

/// What a call does to the limits of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupMode {
    /// Charges the hit if it fits.
    Charge,
    /// Reads whether the hit would fit.
    Peek,
    /// Records that another key denied the hit.
    Deny,
}

/// The charged keys by their number in the policy, each with a receipt.
type ChargedGroups = Vec<(usize, Option<Receipt>)>;

impl UndoableHit {
    /// Decides the hit key by key.
    ///
    /// # Errors
    ///
    /// The error of the first key that cannot be decided. The charges before it are refunded in the background.
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
                // The hit stays denied, also if this key cannot be read.
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

    /// Refunds the charges of earlier keys, and has limits that count denied hits record the denial.
    ///
    /// This runs in a task of its own: the caller gets the denial, however long the refunds take.
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

    /// A deadline before that of the caller, so that the denial reaches it.
    fn early_deadline(&self) -> Instant {
        let early = self.executor.timeouts.timeout / 5;
        self.deadline.checked_sub(early).unwrap_or(self.deadline)
    }

    /// The replies for the limits of a key that cannot be read. They are reported as unused.
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

    /// The indices of the limits of some keys in their policy.
    fn limit_indices(&self, numbers: std::ops::Range<usize>) -> Vec<usize> {
        let groups = &self.pending.command.policy.groups()[numbers];
        let limits = groups.iter().flat_map(|group| &group.limits);
        limits.map(|effective| effective.index).collect()
    }

    /// Whether limits of a key count denied hits.
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

    /// Decides the limits of one key within the deadline of the hit.
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

    /// Decides the limits of one key within another deadline. A timeout does not count for the circuit breaker, because
    /// the deadline may be short.
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

    /// Refunds in the background what was charged before a key failed.
    fn spawn_refund(self: &Arc<UndoableHit>, charged: ChargedGroups) {
        let hit = Arc::clone(self);
        self.spawn_give_back(async move { hit.refund_groups(charged).await });
    }

    /// Refunds the charges of some keys. A charge that cannot be refunded stays until it expires.
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

    /// A receipt for the charge of one key.
    fn group_receipt(&self, reply: &CheckReply) -> Option<Receipt> {
        let hit: Hit<'_> = self.hit();
        let mut marks = vec![RefundMark::NONE; hit.policy.limits().len()];
        for step in &reply.limits {
            marks[step.index] = step.refund_mark();
        }
        Receipt::from_marks(hit, reply.now, marks.into_iter())
    }
}

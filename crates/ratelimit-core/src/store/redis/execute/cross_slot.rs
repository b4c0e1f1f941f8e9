//! Policies whose keys are in several hash slots of a cluster, which one call cannot decide.
//!
//! - The keys are charged one after another, in the order of the limits.
//! - At the first denial the charges before it are refunded, and the remaining keys are only read.
//! - Limits that count denied hits record the denial, on whichever node they are.
//! - A crash in between leaves charges behind, never credit.
//!
//! Three keys of which the second denies, in the order of the calls:
//!
//! | call | key 0 | key 1 | key 2 |
//! |---|---|---|---|
//! | 1 | charge: allowed | | |
//! | 2 | | charge: denied, nothing spent | |
//! | 3 | | | peek, or record the denial if a limit counts denials |
//! | 4, in a task | refund, at most once | | |
//! | 5, in a task | record the denial if a limit counts denials | | |
//!
//! Calls 1 and 2 have the deadline of the caller, call 3 one that is a fifth earlier, calls 4 and 5
//! five seconds. The failure mode decides when a charge fails; a denial stands whatever fails
//! behind it (`docs/decisions/0009-keys-apart.md`).

use std::{sync::Arc, time::Instant};

use crate::store::redis::{
    call::{self, call_work},
    command::{
        check::{CheckCommand, Scope},
        reply::{CheckReply, LimitReplies, LimitReply},
    },
    connection::work_queue::CallSource,
    execute::undoable::UndoableHit,
};
use crate::{
    budget::Adjustment,
    decision::{Charged, LimitDecision, RefundMark},
    policy::HitMode,
    store::{contract::StoreError, hit::Hit, receipt::Receipt},
};

/// The effect of a call on the limits of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupMode {
    /// Charges the hit if it fits. Used until a key denies.
    Charge,
    /// Reads whether the hit would fit, as a dry run. Writes nothing.
    Peek,
    /// Records that another key denied the hit. It spends no units; only limits that count denials
    /// change.
    Deny,
}

/// The charged keys by their number in the policy, each with a receipt.
///
/// Each receipt has the time of its own node. Clocks of nodes differ, and a refund finds its charge
/// by that time.
type ChargedGroups = Vec<(usize, Option<Receipt>)>;

impl UndoableHit {
    /// Decides the hit key by key.
    ///
    /// It runs in the task of the [`UndoableHit`], so a caller that is dropped does not stop it
    /// between two charges. A crash of the process, or a runtime that is shut down, does: the
    /// charges made so far stay until they expire.
    ///
    /// # Errors
    ///
    /// The error of the first key that cannot be decided before any key has denied. The charges
    /// before it are refunded in the background. The failed key itself may have been charged; its
    /// units are not refunded, because the outcome is unknown. A slot that it may have taken is
    /// released.
    pub(in crate::store::redis) async fn check_across_slots(
        self: &Arc<UndoableHit>,
    ) -> Result<Charged, StoreError> {
        // A peek, a dry run and an impossible hit read every key and charge none.
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
            // A charge has the caller's whole deadline, and its timeout counts for the circuit
            // breaker. A read behind a denial must leave time for the answer.
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
                    // The reply of this key is lost, so there is no receipt with marks: only the
                    // slot can be given back.
                    self.release_if_unknown(&error, Scope::Group(number));
                    self.spawn_refund(charged);
                    return Err(error);
                }
            };
            now = Some(reply.now);
            if reply.has_replaced {
                self.route.log().report_replaced(self.hit().policy);
            }
            if mode == GroupMode::Charge {
                if reply.is_allowed {
                    charged.push((number, self.group_receipt(&reply)));
                } else {
                    denied_by = Some(number);
                }
            }
            steps.extend(reply.limits);
        }
        // The decision has one time, that of the last node that replied.
        let now = now.ok_or(StoreError::TimedOut)?;
        if let Some(denied_by) = denied_by {
            steps = self.deny(steps, charged, denied_by).await;
        }
        let is_allowed = steps.iter().all(|step| step.decision.outcome.is_allowed());
        let reply = CheckReply {
            now,
            is_allowed,
            limits: steps,
            has_replaced: false,
        };
        Ok(reply.charged())
    }

    /// Refunds the charges of earlier keys, and has limits that count denied hits record the
    /// denial. Returns the replies as they are after that.
    ///
    /// This runs in a task of its own: the caller gets the denial, however long the refunds take.
    ///
    /// - The refund comes first: a limit that records the denial must not still hold the charge.
    /// - The task waits for the node of each key in turn, up to five seconds for each.
    /// - The caller waits for the numbers until its early deadline. Without them it reports the
    ///   numbers before the charge.
    /// - Beyond the bound of background tasks nothing is refunded, and the charges stay ("a charge
    ///   could not be given back").
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
        // An error means that the task was not spawned or its runtime was shut down.
        let reply = tokio::time::timeout_at(self.early_deadline().into(), reply).await;
        let reply = reply.ok().and_then(Result::ok).unwrap_or_default();
        let place_of = |step: &LimitReply| reply.iter().position(|reply| reply.index == step.index);
        let denied_places = self.limit_indices(denied_by..self.pending.names.len());
        // In this order: a reply after the recorded denial; a limit of the denying or a later key,
        // which was not charged; a limit whose charge is refunded.
        let settled = steps.into_iter().map(|step| match place_of(&step) {
            Some(index) => reply[index],
            None if denied_places.contains(&step.index) => step,
            None => step.refunded(),
        });
        settled.collect()
    }

    /// A deadline before that of the caller, so that the denial reaches it: earlier by a fifth of
    /// the timeout, 5 ms by default.
    fn early_deadline(&self) -> Instant {
        let early = self.executor.timeouts.timeout / 5;
        self.deadline.checked_sub(early).unwrap_or(self.deadline)
    }

    /// The replies for the limits of a key that cannot be read. They are reported as unused.
    ///
    /// They never decide: another key has denied already.
    fn unknown_replies(&self, number: usize) -> impl Iterator<Item = LimitReply> {
        let group = &self.pending.command.policy.groups()[number];
        group.limits.iter().map(move |effective| {
            let unread = LimitDecision::unread(effective.limit.capacity());
            LimitReply {
                index: effective.index,
                decision: unread,
                mark: RefundMark::NONE,
                uncharged: unread,
            }
        })
    }

    /// The indices of the limits of some keys in their policy. Limits of different keys may
    /// alternate there.
    fn limit_indices(&self, numbers: std::ops::Range<usize>) -> Vec<usize> {
        let groups = &self.pending.command.policy.groups()[numbers];
        let limits = groups.iter().flat_map(|group| &group.limits);
        limits.map(|effective| effective.index).collect()
    }

    /// Whether limits of a key count denied hits: a penalty box, or a log with `count-denied`.
    fn counts_denied(&self, number: usize) -> bool {
        let group = &self.pending.command.policy.groups()[number];
        group
            .limits
            .iter()
            .any(|effective| effective.limit.records_denials())
    }

    /// The command for the limits of one key: that of the whole policy with another scope and mode.
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
    ///
    /// # Errors
    ///
    /// - [`StoreError::Unavailable`] without a source: the node of the key is not connected.
    ///   Nothing was sent.
    /// - [`StoreError::TimedOut`]: the deadline has passed, before or after the call was sent.
    /// - Otherwise the errors of [`call::send`].
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
        self.with_deadline(&route, command.max_entries(), reply)
            .await
    }

    /// Decides the limits of one key within another deadline. A timeout does not count for the
    /// circuit breaker, because the deadline may be short.
    ///
    /// # Errors
    ///
    /// Those of [`check_group`](Self::check_group).
    async fn check_group_until(
        &self,
        number: usize,
        mode: GroupMode,
        deadline: Instant,
    ) -> Result<CheckReply, StoreError> {
        let command = self.group_command(number, mode);
        let names = &self.pending.names[number..=number];
        let executor = &self.executor;
        let route = executor.route(&names[0])?;
        let source = CallSource::Hits(Arc::clone(command.policy.shared_name()));
        let work = call_work(command.max_entries());
        let work = executor
            .acquire_work(&route, &source, work, deadline)
            .await?;
        let reply = call::send(&command, names, &executor.router, route, deadline);
        let reply = tokio::time::timeout_at(deadline.into(), reply).await;
        if reply.is_ok() {
            work.end();
        }
        reply.unwrap_or(Err(StoreError::TimedOut))
    }

    /// Refunds in the background what was charged before a key failed. The caller gets its error at
    /// once.
    fn spawn_refund(self: &Arc<UndoableHit>, charged: ChargedGroups) {
        let hit = Arc::clone(self);
        self.spawn_give_back(async move { hit.refund_groups(charged).await });
    }

    /// Refunds the charges of some keys, in the order in which they were charged.
    ///
    /// A refund is sent at most once; see [`Executor::give_back`](super::Executor::give_back). A
    /// charge that cannot be refunded stays until it expires, and the next one is still tried.
    async fn refund_groups(&self, charged: ChargedGroups) {
        for (number, receipt) in charged {
            // The refund of the whole cost also releases the slot of the key.
            let Some(receipt) = receipt else { continue };
            let change = Adjustment::Refund {
                units: receipt.cost(),
            };
            let scope = Scope::Group(number);
            self.executor.give_back(&receipt, scope, change).await;
        }
    }

    /// A receipt for the charge of one key.
    ///
    /// It has a mark for every limit of the policy, and those of other keys are `NONE`. Together
    /// with the scope of the refund this keeps other keys as they are.
    fn group_receipt(&self, reply: &CheckReply) -> Option<Receipt> {
        let hit: Hit<'_> = self.hit();
        let mut marks = vec![RefundMark::NONE; hit.policy.limits().len()];
        for step in &reply.limits {
            marks[step.index] = step.mark;
        }
        Receipt::from_marks(hit, reply.now, marks.into_iter())
    }
}

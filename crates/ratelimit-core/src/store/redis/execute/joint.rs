//! Joint hits: members under several policies, decided in one call where their keys have one hash slot.
//!
//! In a cluster, members in several hash slots are charged one after another, in the order in which they are decided. If
//! the joint hit does not pass, the charges are refunded in the background, and the members are read again
//! (`docs/decisions/0009-keys-apart.md`).
//!
//! Three members of which the second must fit and does not, in the order of the calls:
//!
//! | call | member 0 | member 1 | member 2, which only watches |
//! |---|---|---|---|
//! | 1 | charge: allowed | | |
//! | 2 | | charge: denied, nothing spent | |
//! | 3, in a task | refund, at most once | | |
//! | 4 | dry run, for its numbers | | |
//! | 5 | | | dry run, for its numbers |
//!
//! Calls 1, 2, 4 and 5 have the deadline of the caller, call 3 has five seconds. A dry run that fails leaves the numbers
//! of the charge, or those of unused limits.
//!
//! A joint hit that takes concurrency slots or covers several hash slots runs in a task of its own, and is undone as
//! `undoable.rs` says if its caller is gone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use smallvec::SmallVec;
use tokio::{runtime::Handle, sync::oneshot};

use crate::store::redis::{
    call::{self, call_work},
    command::{
        check::{CheckCommand, Scope},
        check_joint::{JointCommand, JointMember},
        check_joint_windows::JointWindowsCommand,
    },
    connection::{router::Route, work_queue::CallSource},
    execute::{Executor, earliest},
};
use crate::{
    decision::Charged,
    store::{
        contract::StoreError,
        hit::{Hit, OwnedHit},
        joint::{JointHit, JointRole, passes, unread},
        receipt::Receipt,
    },
    time::Timestamp,
};

/// The decisions of the members, in the order of the caller.
type JointResult = Result<Vec<Charged>, StoreError>;

/// A joint hit that is being decided. It owns all that its task needs.
///
/// - One call of `lua/check.lua` decides all members, if their keys have one hash slot.
/// - Without slots the call runs in the task of the caller. Dropping it leaves the charges: all of them or none.
/// - With slots, and across hash slots, a task on the runtime of the connection decides. A caller that timed out gets its
///   charges refunded, one that was dropped only its slots released.
pub(in crate::store::redis) struct JointCall {
    executor: Arc<Executor>,
    /// The connection for the first key.
    route: Route,
    /// The policy with the most entries, which the joint hit counts for.
    policy: Arc<str>,
    /// The members in the order of the caller.
    members: Vec<(OwnedHit, JointRole)>,
    /// The indices of the members in the order in which they are decided.
    order: Vec<usize>,
    /// The Redis keys of all members, each once.
    names: Vec<String>,
    /// The deadline of the caller. Charges after it are refunded.
    deadline: Instant,
    /// The end of a call of the store. A caller with less time does not count for the circuit breaker.
    latest: Instant,
    /// The runtime of the caller, for connections of the application.
    runtime: Handle,
    /// Whether the caller is gone, so that nothing needs to be sent.
    is_abandoned: AtomicBool,
}

/// The pending decisions of a [`JointCall`]. Decisions that the caller does not take are undone.
struct UndoJointOnDrop {
    joint: Arc<JointCall>,
    decisions: oneshot::Receiver<JointResult>,
}

impl Executor {
    /// Decides a joint hit within the timeout, or by the earliest deadline of its members, and charges its members if it
    /// passes.
    ///
    /// # Errors
    ///
    /// Those of [`Executor::check`]. None of the members is charged then, or, after a timeout, all of them or none.
    pub(in crate::store::redis) async fn check_joint(
        self: Arc<Executor>,
        members: Vec<(OwnedHit, JointRole)>,
    ) -> JointResult {
        let (names, key_numbers) = self.joint_names(&members);
        let own = members.iter().filter_map(|(hit, _)| hit.as_hit().deadline);
        let own = own.min();
        self.wait_first_attempts(&names, earliest(own, self.deadline()))
            .await;
        let is_one_call = self.router.same_node(&names);
        let route = self.route(&names[0])?;
        let executor = Arc::clone(&self);
        let entries = |hit: &OwnedHit| hit.as_hit().policy.max_entries();
        let members_by_work = members.iter().map(|(hit, _)| hit);
        let largest = members_by_work.max_by_key(|hit| entries(hit));
        let largest = largest.map(|hit| Arc::clone(hit.as_hit().policy.shared_name()));
        let policy = largest.unwrap_or_default();
        // Members in several hash slots take a permit each.
        let _permit = match executor.in_flight.try_acquire(&policy) {
            Some(permit) if is_one_call => Some(permit),
            Some(_) => None,
            None => return Err(StoreError::Overloaded),
        };
        let latest = self.deadline();
        let deadline = earliest(own, latest);
        if deadline <= Instant::now() {
            return Err(StoreError::TooLate);
        }
        let hits = members.iter();
        let hits = hits.map(|(hit, role)| JointHit::new(hit.as_hit()).role(*role));
        let joint = JointCall {
            order: JointHit::order(&hits.collect::<Vec<_>>()),
            deadline,
            latest,
            executor: self,
            route,
            policy,
            members,
            names,
            runtime: Handle::current(),
            is_abandoned: AtomicBool::new(false),
        };
        let command = is_one_call.then(|| joint.command(&key_numbers));
        match command {
            Some(command) if !joint.takes_slots() => joint.send(&command).await,
            command => joint.spawn(command).await,
        }
    }

    /// The Redis keys of all members, each once, and the numbers of those of each member.
    fn joint_names(
        &self,
        members: &[(OwnedHit, JointRole)],
    ) -> (Vec<String>, Vec<SmallVec<[u16; 2]>>) {
        let mut names: Vec<String> = Vec::new();
        let mut key_numbers = Vec::with_capacity(members.len());
        for (hit, _) in members {
            let hit = hit.as_hit();
            let own = self
                .keys
                .key_names(hit.policy.groups(), |group| hit.key_for(group));
            let numbers = own.into_iter().map(|name| {
                let known = names.iter().position(|known| *known == name);
                let number = known.unwrap_or_else(|| {
                    names.push(name);
                    names.len() - 1
                });
                // 64 members have at most 512 keys.
                u16::try_from(number + 1).unwrap_or(u16::MAX)
            });
            key_numbers.push(numbers.collect());
        }
        (names, key_numbers)
    }
}

impl JointCall {
    /// A member.
    fn hit(&self, index: usize) -> Hit<'_> {
        self.members[index].0.as_hit()
    }

    /// Whether a member takes a concurrency slot, which must not stay behind.
    fn takes_slots(&self) -> bool {
        let mut hits = self.members.iter().map(|(hit, _)| hit.as_hit());
        hits.any(|hit| !hit.is_read_only() && hit.policy.has_concurrency_limit())
    }

    /// The message that decides all members in one call.
    fn command(&self, key_numbers: &[SmallVec<[u16; 2]>]) -> JointCommand {
        let now = self.executor.manual_now();
        let members = self.order.iter().map(|&index| {
            let hit = self.hit(index);
            JointMember {
                command: CheckCommand {
                    policy: hit.policy.clone(),
                    scope: Scope::Policy,
                    params: hit.params(),
                    is_denied: false,
                    now,
                },
                role: self.members[index].1,
                key_numbers: key_numbers[index].clone(),
            }
        });
        JointCommand {
            members: members.collect(),
            now,
        }
    }

    /// Decides all members in one call.
    ///
    /// # Errors
    ///
    /// Those of [`call::send`], and [`StoreError::TimedOut`]. The script charges all members or none, so after a timeout
    /// the joint hit was charged as a whole or not at all.
    async fn send(&self, command: &JointCommand) -> JointResult {
        let (router, deadline) = (&self.executor.router, self.deadline);
        let hits = self.members.iter().map(|(hit, _)| hit.as_hit());
        let work = call_work(hits.map(|hit| hit.policy.max_entries()).sum());
        let source = CallSource::Hits(Arc::clone(&self.policy));
        let executor = &self.executor;
        let work = executor.acquire_work(&self.route, &source, work, deadline);
        let work = work.await?;
        if self.is_abandoned.load(Ordering::Relaxed) {
            work.cancel();
            return Err(StoreError::Overloaded);
        }
        let route = || self.route.clone();
        let sent = async {
            if let Some(windows) = JointWindowsCommand::new(command) {
                let sent = call::send(&windows, &self.names, router, route(), deadline);
                if let Some(replies) = sent.await? {
                    return Ok(replies);
                }
                call::ensure_in_time(deadline)?;
            }
            call::send(command, &self.names, router, route(), deadline).await
        };
        let counted = (deadline == self.latest).then_some(&self.route);
        let decided = executor
            .with_deadline(counted, deadline, work, sent)
            .await?;
        let mut replies: Vec<_> = self.order.iter().zip(decided).collect();
        replies.sort_unstable_by_key(|(index, _)| **index);
        let decisions = replies.into_iter().map(|(&index, reply)| {
            if reply.has_replaced {
                self.route.log().report_replaced(self.hit(index).policy);
            }
            reply.charged()
        });
        Ok(decisions.collect())
    }

    /// Decides the joint hit in a task on the runtime of the connection, which goes on when the caller is dropped.
    /// Without a command the members are in several hash slots.
    async fn spawn(self, command: Option<JointCommand>) -> JointResult {
        let joint = Arc::new(self);
        let (sender, decisions) = oneshot::channel();
        let task = Arc::clone(&joint);
        joint.connection_runtime().spawn(async move {
            let decisions = match &command {
                // The caller has timed out before anything was sent.
                _ if Instant::now() >= task.deadline => Err(StoreError::TimedOut),
                Some(command) => task.send(command).await,
                None => task.check_across_slots().await,
            };
            if command.is_some()
                && let Err(error) = &decisions
                && error.may_have_run()
            {
                task.spawn_release_all();
            }
            if let Err(decisions) = sender.send(decisions) {
                task.spawn_undo(decisions);
            }
        });
        let mut guard = UndoJointOnDrop { joint, decisions };
        match tokio::time::timeout_at(guard.joint.deadline.into(), &mut guard.decisions).await {
            Ok(Ok(decisions)) => decisions,
            // The runtime of the connection was shut down, maybe after the call was sent.
            Ok(Err(ended)) => {
                let error = StoreError::unavailable(ended);
                guard.joint.spawn_release_all();
                guard.joint.executor.router.log().log_kept_charge(&error);
                Err(error)
            }
            Err(_) => Err(StoreError::TimedOut),
        }
    }

    /// Charges the members one after another, and refunds the charges if the joint hit does not pass.
    async fn check_across_slots(self: &Arc<JointCall>) -> JointResult {
        let mut decisions: Vec<Option<Charged>> = vec![None; self.members.len()];
        for &index in &self.order {
            // A member that only watches is charged after the others have passed.
            let role = self.members[index].1;
            if role == JointRole::Watch && !self.passes(&decisions) {
                break;
            }
            match self.check_member(self.hit(index), self.deadline).await {
                Ok(decision) => {
                    let is_denied = role == JointRole::Must && !decision.is_allowed();
                    decisions[index] = Some(decision);
                    if is_denied {
                        break;
                    }
                }
                Err(error) => {
                    let charged = self.receipts(decisions.iter());
                    self.spawn_give_back(charged, true);
                    return Err(error);
                }
            }
        }
        if !self.passes(&decisions) {
            let refunded = self.spawn_give_back(self.receipts(decisions.iter()), true);
            let early = self
                .deadline
                .checked_sub(self.executor.timeouts.timeout / 5);
            let early = early.unwrap_or(self.deadline);
            let _ = tokio::time::timeout_at(early.into(), refunded).await;
            // The numbers without the charges, read before the caller's deadline so that the denial reaches it. A node
            // that does not answer leaves those with the charge.
            for (index, decision) in decisions.iter_mut().enumerate() {
                if decision.as_ref().is_none_or(|charged| charged.is_allowed())
                    && let Ok(read) = self.check_member(self.hit(index).dry_run(), early).await
                {
                    *decision = Some(read);
                }
            }
        }
        let times = decisions
            .iter()
            .flatten()
            .map(|charged| charged.decision.now);
        let now = times.max().unwrap_or_default();
        let known = decisions.into_iter().enumerate();
        Ok(known
            .map(|(index, decision)| {
                decision.unwrap_or_else(|| unread(self.hit(index), now).into())
            })
            .collect())
    }

    /// Whether the joint hit passes by these decisions. A member that was not decided does not fit.
    fn passes(&self, decisions: &[Option<Charged>]) -> bool {
        let fits = decisions.iter().map(|decision| {
            decision
                .as_ref()
                .is_some_and(|charged| charged.is_allowed())
        });
        passes(self.members.iter().map(|(_, role)| *role).zip(fits))
    }

    /// Decides one member as a single hit by `deadline`.
    async fn check_member(&self, hit: Hit<'_>, deadline: Instant) -> Result<Charged, StoreError> {
        let prepared = self.executor.prepare(hit.deadline(deadline));
        let prepared = prepared.map_err(|_| StoreError::Unavailable { source: None })?;
        Arc::clone(&self.executor)
            .check(prepared, self.latest)
            .await
    }

    /// The receipts of the members that were charged.
    ///
    /// Each has the time of its own node, so that a refund finds its charge. A member that was denied or is read only
    /// has none.
    fn receipts<'d>(&self, decisions: impl Iterator<Item = &'d Option<Charged>>) -> Vec<Receipt> {
        let decided = decisions.enumerate();
        let charged = decided
            .filter_map(|(index, decision)| Receipt::new(self.hit(index), decision.as_ref()?));
        charged.collect()
    }

    /// The runtime of the connection, or that of the caller for a connection of the application.
    fn connection_runtime(&self) -> &Handle {
        self.route.runtime().unwrap_or(&self.runtime)
    }

    /// Refunds charges in the background, or only releases their slots. The result is ready when that is done.
    fn spawn_give_back(&self, receipts: Vec<Receipt>, is_refund: bool) -> oneshot::Receiver<()> {
        let (sender, done) = oneshot::channel();
        if receipts.is_empty() {
            return done;
        }
        let executor = Arc::clone(&self.executor);
        let fallback_runtime = || Some(self.connection_runtime().clone());
        let policy = &self.policy;
        self.executor
            .spawn_give_back(policy, fallback_runtime, async move {
                for receipt in &receipts {
                    if is_refund {
                        executor.refund_late(receipt).await;
                    } else {
                        executor.release_late(receipt).await;
                    }
                }
                let _ = sender.send(());
            });
        done
    }

    /// Releases all slots that a call without a reply may have taken.
    fn spawn_release_all(&self) {
        let slots = self.members.iter().filter_map(|(hit, _)| {
            Receipt::from_marks(hit.as_hit(), Timestamp::default(), std::iter::empty())
        });
        let slots: Vec<Receipt> = slots.filter(|slot| slot.lease().is_some()).collect();
        drop(self.spawn_give_back(slots, false));
    }

    /// Undoes a joint hit whose caller is gone: refunds it after a timeout, and otherwise only releases its slots.
    fn spawn_undo(&self, decisions: JointResult) {
        let Ok(decisions) = decisions else { return };
        let decisions: Vec<Option<Charged>> = decisions.into_iter().map(Some).collect();
        if !self.passes(&decisions) {
            return;
        }
        let is_late = Instant::now() >= self.deadline;
        let mut receipts = self.receipts(decisions.iter());
        if !is_late {
            receipts.retain(|receipt| receipt.lease().is_some());
        }
        drop(self.spawn_give_back(receipts, is_late));
    }
}

impl Drop for UndoJointOnDrop {
    /// Undoes decisions that arrived and were not taken. After `close` later ones fail to be sent, and the task undoes
    /// them.
    fn drop(&mut self) {
        self.joint.is_abandoned.store(true, Ordering::Relaxed);
        self.decisions.close();
        if let Ok(decisions) = self.decisions.try_recv() {
            self.joint.spawn_undo(decisions);
        }
    }
}

//! Settlements, resets and deletions.
//!
//! - A settlement is sent once. When its reply is lost it may have been applied, and sending it
//!   again could refund twice. The give-backs in `undoable.rs` follow the same rule.
//! - A settlement carries no deadline for the server: it takes effect even if it runs after the
//!   caller's timeout.
//! - A timeout does not count for the circuit breaker and writes no metric. The caller sees the
//!   error.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, sync::oneshot};

use crate::store::redis::{
    call::{self, call_work},
    command::{check::Scope, reset::ResetCommand, settle::SettleCommand},
    connection::work_queue::CallSource,
    execute::Executor,
    keyspace::KeyNames,
};
use crate::{
    budget::Adjustment,
    key_set::KeySet,
    limit::Limit,
    policy::Policy,
    store::{
        contract::{Settlement, StoreError},
        hit::Hit,
        receipt::Receipt,
    },
};

impl Executor {
    /// Changes a charge on all its keys, or on the only one that the change is about.
    ///
    /// - Keys in one hash slot are changed in one call, in the task of the caller. A caller that is
    ///   dropped leaves the change applied or not.
    /// - Keys in several are changed one after another, in a task on the connection's runtime that
    ///   goes on when the caller is dropped.
    ///
    /// # Errors
    ///
    /// - [`StoreError::Unavailable`]: there is no connection for a key, or it broke.
    /// - [`StoreError::TimedOut`]: there was no reply by the deadline. The change may have been
    ///   applied.
    /// - [`StoreError::Refused`]: Redis replied with an error about one of the keys.
    pub(in crate::store::redis) async fn settle(
        self: Arc<Executor>,
        receipt: Receipt,
        change: Adjustment,
    ) -> Result<Settlement, StoreError> {
        let deadline = self.deadline();
        let names = self.receipt_names(&receipt);
        let groups = receipt.policy().groups().iter().enumerate();
        let mut changed = groups.filter(|(_, group)| change.changes(group));
        if let (Some((number, _)), None) = (changed.next(), changed.next()) {
            let scope = Scope::Group(number);
            return self.settle_scope(&receipt, scope, change, deadline).await;
        }
        if self.router.same_node(&names) {
            let scope = Scope::Policy;
            return self.settle_scope(&receipt, scope, change, deadline).await;
        }
        self.wait_first_attempts(&names, deadline).await;
        // Any node that is connected will do: the route only selects the runtime of the task.
        let route = names.iter().find_map(|name| self.router.route(name));
        let route = route.ok_or(StoreError::Unavailable { source: None })?;
        let (sender, settlement) = oneshot::channel();
        let runtime = route.runtime().cloned().unwrap_or_else(Handle::current);
        runtime.spawn(async move {
            let settling = self.settle_across_slots(&receipt, names.len(), change);
            let _ = sender.send(settling.await);
        });
        // The timeout is needed although the task has one: the connection's runtime may not be driven.
        match tokio::time::timeout_at(deadline.into(), settlement).await {
            Ok(Ok(settlement)) => settlement,
            Ok(Err(_)) | Err(_) => Err(StoreError::TimedOut),
        }
    }

    /// Changes a charge on keys in several hash slots. A key that fails does not stop the others.
    ///
    /// Each key has the whole timeout, so a node that hangs does not use up the time of the keys behind it. The caller
    /// waits for one timeout in all.
    ///
    /// # Errors
    ///
    /// The first error of any key, also if others were changed. The charges of keys that failed
    /// stay as they are. [`StoreError::TimedOut`] if nothing was sent for one key, but for another.
    async fn settle_across_slots(
        &self,
        receipt: &Receipt,
        count: usize,
        change: Adjustment,
    ) -> Result<Settlement, StoreError> {
        let (mut total, mut is_sent) = (Ok(Settlement::Unchanged), false);
        for number in 0..count {
            let scope = Scope::Group(number);
            let deadline = self.deadline();
            let settlement = self.settle_scope(receipt, scope, change, deadline).await;
            is_sent |= settlement
                .as_ref()
                .err()
                .is_none_or(|error| !error.may_be_repeated());
            total = match (total, settlement) {
                (Err(error), _) | (_, Err(error)) => Err(error),
                // A slot that is lost on one node is lost: the holder must stop, whatever the other
                // nodes replied.
                (Ok(Settlement::LeaseLost), _) | (_, Ok(Settlement::LeaseLost)) => {
                    Ok(Settlement::LeaseLost)
                }
                (Ok(Settlement::Unchanged), Ok(settlement)) => Ok(settlement),
                (Ok(total), Ok(_)) => Ok(total),
            };
        }
        // The change may have been made for other keys, so the whole must not be sent again.
        total.map_err(|error| match error {
            error if is_sent && error.may_be_repeated() => StoreError::TimedOut,
            error => error,
        })
    }

    /// Changes a charge on the keys of one call.
    ///
    /// The names are derived from the receipt again, because a scope covers only some of them.
    ///
    /// # Errors
    ///
    /// - [`StoreError::Unavailable`] without a source: there is no connection, a redirection names
    ///   an unknown node, or the server refuses all calls. Nothing was executed, so the caller may
    ///   send the change again.
    /// - [`StoreError::Unavailable`] with a source: the connection broke, and the change may have
    ///   been applied.
    /// - [`StoreError::Overloaded`]: too much work was in flight at the server for too long. Nothing was sent.
    /// - [`StoreError::TimedOut`]: no reply by `deadline`. The change may have been applied.
    /// - [`StoreError::Refused`]: Redis replied with an error. Nothing was changed.
    pub(in crate::store::redis) async fn settle_scope(
        &self,
        receipt: &Receipt,
        scope: Scope,
        change: Adjustment,
        deadline: Instant,
    ) -> Result<Settlement, StoreError> {
        let groups = scope.groups(receipt.policy());
        let names = self.keys.key_names(groups, |group| receipt.key_for(group));
        self.wait_first_attempts(&names, deadline).await;
        let route = self.route(&names[0])?;
        let source = CallSource::Changes(Arc::clone(receipt.policy().shared_name()));
        let limits = groups.iter().flat_map(|group| &group.limits);
        let work = change_work(limits.map(|effective| &effective.limit), change);
        let work = self.acquire_work(&route, &source, work, deadline).await?;
        let command = SettleCommand {
            receipt,
            scope,
            change,
            now: self.manual_now(),
        };
        let settlement = call::send(&command, &names, &self.router, route, deadline);
        let settlement = tokio::time::timeout_at(deadline.into(), settlement).await;
        if settlement.is_ok() {
            work.end();
        }
        settlement.unwrap_or(Err(StoreError::TimedOut))
    }

    /// Refunds a charge, on all nodes of its keys. That also releases its slot.
    pub(in crate::store::redis) async fn refund_late(&self, receipt: &Receipt) {
        let units = receipt.cost();
        for scope in self.scopes(&self.receipt_names(receipt)) {
            let refund = Adjustment::Refund { units };
            self.give_back(receipt, scope, refund).await;
        }
    }

    /// Forgets what the keys have spent, one call for each and each with a timeout of its own.
    ///
    /// `lua/reset.lua` leaves the time of the reset behind, so that receipts from before it refund
    /// nothing.
    ///
    /// # Errors
    ///
    /// The error of the first key that fails, as for [`settle`](Self::settle). Keys before it are
    /// reset, keys behind it are not.
    pub(in crate::store::redis) async fn reset(&self, names: &[String]) -> Result<(), StoreError> {
        for name in names {
            let deadline = self.deadline();
            // One call for each key: keys in several hash slots need no case of their own.
            let names = std::slice::from_ref(name);
            self.wait_first_attempts(names, deadline).await;
            let route = self.route(name)?;
            let command = ResetCommand {
                now: self.manual_now(),
            };
            let reset = call::send(&command, names, &self.router, route, deadline);
            let reset = tokio::time::timeout_at(deadline.into(), reset).await;
            reset.unwrap_or(Err(StoreError::TimedOut))?;
        }
        Ok(())
    }

    /// Deletes the values of `keys` under `policy`, for tools that leave nothing behind.
    ///
    /// Unlike a reset this leaves no time behind, so an older receipt may credit later charges.
    ///
    /// # Errors
    ///
    /// The error of the first key that fails. Keys behind it are not deleted.
    pub(in crate::store::redis) async fn delete(
        &self,
        policy: &Policy,
        keys: &KeySet,
    ) -> Result<(), StoreError> {
        for name in &self.key_names(policy, keys) {
            self.delete_key(name).await?;
        }
        Ok(())
    }

    /// Deletes the reserved key of the handshake. In a cluster it deletes one of them; each node
    /// has its own.
    ///
    /// # Errors
    ///
    /// Those of [`delete`](Self::delete).
    pub(in crate::store::redis) async fn delete_probe_key(&self) -> Result<(), StoreError> {
        self.delete_key(&self.keys.probe_key(|_| true)).await
    }

    /// Deletes one Redis key with DEL.
    ///
    /// # Errors
    ///
    /// - [`StoreError::Unavailable`]: there is no connection.
    /// - [`StoreError::TimedOut`]: no reply within the timeout of a hit.
    /// - [`StoreError::Refused`]: any error of Redis, also a broken connection. The connection is
    ///   not marked as broken here; the next hit or heartbeat finds it.
    async fn delete_key(&self, name: &String) -> Result<(), StoreError> {
        let deadline = self.deadline();
        self.wait_first_attempts(std::slice::from_ref(name), deadline)
            .await;
        let route = self.route(name)?;
        let mut cmd = redis::cmd("DEL");
        cmd.arg(name);
        match tokio::time::timeout_at(deadline.into(), route.send(cmd)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(StoreError::refused(error)),
            Err(_) => Err(StoreError::TimedOut),
        }
    }

    /// The Redis keys of `keys` under `policy`, one for each group of limits.
    pub(in crate::store::redis) fn key_names(&self, policy: &Policy, keys: &KeySet) -> KeyNames {
        let hit = Hit::for_keys(policy, keys);
        self.keys
            .key_names(policy.groups(), |group| hit.key_for(group))
    }

    /// The Redis keys that were charged, in the order in which they were charged.
    pub(in crate::store::redis) fn receipt_names(&self, receipt: &Receipt) -> KeyNames {
        let groups = receipt.policy().groups();
        self.keys.key_names(groups, |group| receipt.key_for(group))
    }
}

/// Estimates the time that Redis takes for a change of a charge under these limits.
fn change_work<'a>(limits: impl Iterator<Item = &'a Limit>, change: Adjustment) -> Duration {
    // These compare the stamps of a log one by one.
    let compares = matches!(
        change,
        Adjustment::Refund { .. } | Adjustment::Charge { .. } | Adjustment::CatchUp { .. }
    );
    let entries = limits.map(|limit| match limit {
        Limit::SlidingWindowLog(_) if compares => limit.max_entries().saturating_mul(5),
        _ => limit.max_entries(),
    });
    call_work(entries.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_of_units_in_logs_count_for_more() {
        let log = Policy::parse("log", "sliding_window_log 1000/min").unwrap();
        let slots = Policy::parse("slots", "concurrency 1000").unwrap();
        let work = |policy: &Policy, change| change_work(policy.limits().iter(), change);
        let refund = Adjustment::Refund { units: 1 };

        assert_eq!(work(&log, refund), call_work(5_000));
        assert_eq!(work(&log, Adjustment::Release), call_work(1_000));
        assert_eq!(work(&slots, refund), call_work(1_000));
        assert_eq!(work(&slots, Adjustment::Renew), call_work(1_000));
    }
}

//! One check: from the bulkhead to the decision, and no longer than its timeout.
//!
//! ```text
//! prepare        names of the Redis keys, route; fails at once without a connection,
//!                waits only for the first attempt to connect
//! check          deadline = first poll + timeout; one permit of the bulkhead
//!   undoable.rs  a concurrency slot or several hash slots: a task of its own
//!   batched      queued for the next batch of the same limits and cost
//!   single       one call: the unrolled script if it applies, else the general one
//! joint.rs       hits under several policies
//! settle.rs      changes to a charge, resets, deletions
//! ```

mod bulkhead;
mod cross_slot;
mod joint;
mod settle;
mod undoable;

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::store::redis::{
    batch::{
        BatchOutcome, PendingHit,
        batcher::{Batcher, Dispatch},
    },
    call::{self, call_work},
    command::{
        check::{CheckCommand, Scope},
        check_batch::BatchCommand,
    },
    config::{RedisConfig, Timeouts},
    connection::{
        router::{Route, Router},
        work_queue::{CallSource, WorkPermit},
    },
    execute::bulkhead::Bulkhead,
    keyspace::KeySpace,
};
use crate::{
    decision::Charged,
    metrics,
    store::{
        contract::StoreError,
        hit::{Hit, OwnedHit},
    },
    time::{Clock, Timestamp},
};

/// Background tasks that give charges or slots of one policy back: four for each hit that may be in flight, and at most
/// this many.
///
/// Such a task lives up to five seconds, a hit 100 ms. Without a bound, an outage would pile up
/// tasks until memory ends.
const MAX_GIVE_BACKS: usize = 4_096;

/// Executes checks and settlements against Redis.
///
/// - At most `max_in_flight` hits of a policy are in flight, and fewer than twice as many of all.
///   Further ones fail with [`StoreError::Overloaded`] and are not queued.
/// - A call waits while the calls in flight at its server are enough work; see
///   [`WorkQueue`](crate::store::redis::connection::work_queue::WorkQueue).
/// - A hit is sent by itself or in a batch, as the [`Batcher`] decides.
/// - A hit that may have to be undone runs in a task of its own; see
///   [`UndoableHit`](undoable::UndoableHit). These are hits on keys in several hash slots, and hits
///   that take a concurrency slot.
/// - A hit that fits neither case runs in the task of its caller. Dropping it leaves the charge:
///   once or not at all.
/// - Settlements, resets and deletions need no permit.
pub(super) struct Executor {
    /// The connections. Background tasks share them.
    pub(super) router: Arc<Router>,
    /// The queues of hits that wait for a call in flight.
    batcher: Arc<Batcher>,
    /// The names of Redis keys.
    pub(super) keys: KeySpace,
    /// The clock of decisions if it is a manual one. The system clock stands for the clock of the
    /// server.
    pub(super) clock: Clock,
    /// The timeouts and bounds of the configuration.
    pub(super) timeouts: Timeouts,
    /// One permit for each hit in flight. The caller's future holds it, so a dropped caller returns
    /// it.
    in_flight: Bulkhead,
    /// One permit for each background task that gives something back. The task holds it.
    give_backs: Arc<Bulkhead>,
}

/// A hit whose route is known. It owns all that the call needs and borrows nothing of the caller.
pub(super) struct PreparedHit {
    /// The connection for the first key. Other keys of the hit find their own.
    route: Route,
    /// The command and the Redis keys, shared with the batch or the task that sends them.
    pending: Arc<PendingHit>,
    /// The hit itself, if it may have to be undone.
    undoable: Option<Box<OwnedHit>>,
    /// The deadline of the caller itself, if it has one.
    deadline: Option<Instant>,
}

/// Why a hit has no route.
pub(super) enum NoRoute {
    /// The first attempt to connect is under way. The hit may wait for it.
    Connecting,
    /// There is no connection.
    Disconnected,
}

impl Executor {
    /// An executor with empty queues, which connects in the background if this is a runtime, and with the first hit
    /// otherwise.
    pub(super) fn new(router: Router, config: RedisConfig) -> Executor {
        let timeouts = config.timeouts;
        router.start();
        let router = Arc::new(router);
        let in_flight = timeouts.max_in_flight;
        let give_backs = in_flight.saturating_mul(4).min(MAX_GIVE_BACKS);
        Executor {
            batcher: Batcher::new(Arc::clone(&router), timeouts),
            router,
            keys: config.keys,
            clock: config.clock,
            timeouts,
            in_flight: Bulkhead::new(in_flight),
            give_backs: Arc::new(Bulkhead::new(give_backs)),
        }
    }

    /// Finds the connection for a hit, and copies what the call needs of it.
    ///
    /// This part is synchronous: without a connection the limiter gets the error before any future
    /// is boxed.
    ///
    /// # Errors
    ///
    /// [`NoRoute`] if there is no connection. Nothing was sent.
    pub(super) fn prepare(&self, hit: Hit<'_>) -> Result<PreparedHit, NoRoute> {
        let groups = hit.policy.groups();
        let names = self.keys.key_names(groups, |group| hit.key_for(group));
        let route = match self.router.route(&names[0]) {
            Some(route) => route,
            None if self.router.is_connecting(&names) => return Err(NoRoute::Connecting),
            // The first attempt may have succeeded since the line above.
            None => self.router.route(&names[0]).ok_or(NoRoute::Disconnected)?,
        };
        let is_one_call = self.router.same_node(&names);
        if !is_one_call && self.router.is_connecting(&names) {
            return Err(NoRoute::Connecting);
        }
        let takes_slot = !hit.is_read_only() && hit.policy.has_concurrency_limit();
        let is_undoable = takes_slot || !is_one_call;
        let command = CheckCommand {
            policy: hit.policy.clone(),
            scope: Scope::Policy,
            params: hit.params(),
            is_denied: false,
            now: self.manual_now(),
        };
        Ok(PreparedHit {
            route,
            pending: Arc::new(PendingHit::new(command, names)),
            undoable: is_undoable.then(|| Box::new(OwnedHit::new(hit))),
            deadline: hit.deadline,
        })
    }

    /// Decides a hit after the first attempt to connect. The wait and the call have a timeout each: a call with less
    /// time would count as slow, and hits that waited together would open the circuit breaker of a healthy connection.
    ///
    /// # Errors
    ///
    /// Those of [`check`](Self::check), and [`StoreError::Unavailable`] without a source if there is no connection then.
    pub(super) async fn check_when_connected(
        self: Arc<Executor>,
        hit: OwnedHit,
    ) -> Result<Charged, StoreError> {
        let groups = hit.as_hit().policy.groups();
        let names = self
            .keys
            .key_names(groups, |group| hit.as_hit().key_for(group));
        let deadline = earliest(hit.as_hit().deadline, self.deadline());
        self.wait_first_attempts(&names, deadline).await;
        match self.prepare(hit.as_hit()) {
            Ok(prepared) => {
                let deadline = self.deadline();
                self.check(prepared, deadline).await
            }
            Err(_) => Err(StoreError::Unavailable { source: None }),
        }
    }

    /// Waits for the first attempt to connect the servers of these Redis keys, at most until `deadline`.
    ///
    /// It returns at once when that has ended.
    async fn wait_first_attempts(&self, names: &[String], deadline: Instant) {
        if self.router.is_connecting(names) {
            let attempts = self.router.first_attempts(names);
            let _ = tokio::time::timeout_at(deadline.into(), attempts).await;
        }
    }

    /// The end of a call that starts now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeouts.timeout
    }

    /// Decides a hit by its own deadline, at the latest by `latest`, and charges it if it is allowed.
    ///
    /// The rare branches are boxed: a future that waits for its batch stays small.
    ///
    /// # Errors
    ///
    /// - [`StoreError::Overloaded`]: all permits are taken. Nothing was sent.
    /// - [`StoreError::TooLate`]: the deadline passed before the hit was sent, or before its script ran.
    /// - [`StoreError::TimedOut`]: there was no reply by the deadline. A script that runs later does
    ///   nothing, so the hit is charged only if its script ran in time and the reply came late.
    /// - [`StoreError::Unavailable`]: the connection broke, or the server refuses all calls.
    /// - [`StoreError::Refused`]: Redis replied with an error about this call, or with a state that
    ///   cannot be read.
    pub(super) async fn check(
        self: Arc<Executor>,
        prepared: PreparedHit,
        latest: Instant,
    ) -> Result<Charged, StoreError> {
        let PreparedHit {
            route,
            pending,
            undoable,
            deadline,
        } = prepared;
        let deadline = earliest(deadline, latest);
        if deadline < latest && deadline <= Instant::now() {
            return Err(StoreError::TooLate);
        }
        if let Some(hit) = undoable {
            let is_short = deadline < latest;
            let checked = self.check_undoable(route, pending, *hit, deadline, is_short);
            return Box::pin(checked).await;
        }
        let policy = Arc::clone(pending.command.policy.shared_name());
        let Some(_permit) = self.in_flight.try_acquire(&policy) else {
            return Err(StoreError::Overloaded);
        };
        let dispatch = if pending.command.is_batchable() {
            self.batcher.enqueue(&route, &pending, deadline)
        } else {
            Dispatch::Single(None)
        };
        let (_call_permit, skip_fast_script) = match dispatch {
            Dispatch::Single(permit) => (permit, false),
            // The batch counts its own timeout for the circuit breaker, so its hits do not.
            Dispatch::Batched(mut outcome) => {
                match tokio::time::timeout_at(deadline.into(), &mut outcome).await {
                    Ok(Ok(BatchOutcome::Decided(decision))) => return decision,
                    // The batch left this hit undecided, and nothing was charged for it.
                    Ok(Ok(BatchOutcome::SendSingle { skip_fast_script })) => {
                        (None, skip_fast_script)
                    }
                    // The hit was still queued, or its batch was dropped with its runtime.
                    Ok(Err(_)) | Err(_) if pending.claim() => return Err(StoreError::TooLate),
                    Ok(Err(_)) => return Err(StoreError::TimedOut),
                    Err(_) => {
                        if deadline < latest {
                            metrics::ambiguous();
                        }
                        return Err(StoreError::TimedOut);
                    }
                }
            }
        };
        let source = CallSource::Hits(policy);
        let work = call_work(pending.command.max_entries());
        let work = self.acquire_work(&route, &source, work, deadline).await?;
        let executor = Arc::clone(&self);
        let own_route = route.clone();
        let mut decision = Box::pin(async move {
            let decision = executor.check_single(&own_route, &pending, deadline, skip_fast_script);
            decision.await
        });
        if let Ok(decision) = tokio::time::timeout_at(deadline.into(), &mut decision).await {
            work.end();
            return decision;
        }
        metrics::ambiguous();
        if deadline < latest {
            self.spawn_timeout(decision, route, latest);
        } else {
            self.router.record_timeout(&route, self.elapsed(deadline));
        }
        Err(StoreError::TimedOut)
    }

    /// Counts a call of a caller with less time than a call as slow only if there is no reply by `latest`. The circuit
    /// breaker opens for a server that is silent, and not for one that is slower than the caller.
    fn spawn_timeout(
        self: &Arc<Executor>,
        reply: impl Future<Output = Result<Charged, StoreError>> + Send + 'static,
        route: Route,
        latest: Instant,
    ) {
        let executor = Arc::clone(self);
        tokio::spawn(async move {
            match tokio::time::timeout_at(latest.into(), reply).await {
                Ok(Err(StoreError::Unavailable { .. })) => {}
                Ok(_) => route.record_reply(),
                Err(_) => {
                    let elapsed = executor.elapsed(latest);
                    executor.router.record_timeout(&route, elapsed);
                }
            }
        });
    }

    /// Waits until a call may be sent to a server, at most until the rest of its time is what such a call may take.
    ///
    /// # Errors
    ///
    /// [`StoreError::Overloaded`] after that time. Nothing was sent.
    pub(super) async fn acquire_work(
        &self,
        route: &Route,
        source: &CallSource,
        work: Duration,
        deadline: Instant,
    ) -> Result<WorkPermit, StoreError> {
        let timeout = self.timeouts.timeout;
        let call_time = route.clock().min_round_trip() + timeout / 4;
        let latest = deadline.checked_sub(call_time).unwrap_or(deadline);
        let permit = route.acquire_work(source, work, timeout);
        let permit = tokio::time::timeout_at(latest.into(), permit).await;
        permit.map_err(|_| StoreError::Overloaded)
    }

    /// Awaits a call until its deadline, and counts a timeout for the circuit breaker of `route`. There is none for a
    /// caller with less time than a call of the store.
    ///
    /// A timeout increments `rate_limiter_ambiguous_total` and `rate_limiter_slow_calls_total`.
    ///
    /// # Errors
    ///
    /// The error of the call, or [`StoreError::TimedOut`].
    async fn with_deadline<T>(
        &self,
        route: Option<&Route>,
        deadline: Instant,
        work: WorkPermit,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        if let Ok(result) = tokio::time::timeout_at(deadline.into(), call).await {
            work.end();
            return result;
        }
        metrics::ambiguous();
        if let Some(route) = route {
            self.router.record_timeout(route, self.elapsed(deadline));
        }
        Err(StoreError::TimedOut)
    }

    /// The time since a call with this deadline started: the timeout, and the delay with which it
    /// was noticed.
    fn elapsed(&self, deadline: Instant) -> Duration {
        self.timeouts.timeout + deadline.elapsed()
    }

    /// Decides a hit in a call of its own: by the unrolled script if it applies, else by the general
    /// one.
    ///
    /// The unrolled script replies `REPLY_FALLBACK` without a charge for values that it does not
    /// decide. The second call has the time that is left.
    ///
    /// # Errors
    ///
    /// Those of [`call::send`]. The caller sets the time limit.
    async fn check_single(
        &self,
        route: &Route,
        pending: &PendingHit,
        deadline: Instant,
        skip_fast_script: bool,
    ) -> Result<Charged, StoreError> {
        let PendingHit { command, names, .. } = pending;
        if command.is_unrolled() && !skip_fast_script {
            let batch = BatchCommand::new(command, [1]);
            let entries = call::send(&batch, names, &self.router, route.clone(), deadline).await?;
            if let Some(entry) = entries.first() {
                if entry.has_replaced() {
                    route.log().report_replaced(&command.policy);
                }
                let decision = entry.decision_for(0, command).map_err(|invalid| {
                    route.log().log_refused(&invalid);
                    StoreError::refused(invalid)
                })?;
                if let Some(decision) = decision {
                    return Ok(decision);
                }
            }
            call::ensure_in_time(deadline)?;
        }
        let reply = call::send(command, names, &self.router, route.clone(), deadline).await?;
        if reply.has_replaced {
            route.log().report_replaced(&command.policy);
        }
        Ok(reply.charged())
    }

    /// The connection for a Redis key.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] without a source: nothing was sent, so a refund may be tried
    /// again.
    fn route(&self, name: &str) -> Result<Route, StoreError> {
        let route = self.router.route(name);
        route.ok_or(StoreError::Unavailable { source: None })
    }

    /// The time of a manual clock, which tests set. Otherwise the scripts read the server's clock.
    fn manual_now(&self) -> Option<Timestamp> {
        self.clock.is_manual().then(|| self.clock.now())
    }
}

/// The deadline of a caller with one of its `own`, for a call that ends at `latest`.
fn earliest(own: Option<Instant>, latest: Instant) -> Instant {
    own.map_or(latest, |own| own.min(latest))
}

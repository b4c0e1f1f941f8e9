//! One check: from the bulkhead to the decision, and no longer than its timeout.

mod cross_slot;
mod settle;
mod undoable;

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;

use crate::store::redis::{
    batch::{
        BatchOutcome, PendingHit,
        batcher::{Batcher, Dispatch},
    },
    call,
    command::{
        check::{CheckCommand, Scope},
        check_bucket::BucketCommand,
    },
    config::{RedisConfig, Timeouts},
    connection::router::{Route, Router},
    keyspace::KeySpace,
};
use crate::{
    decision::Decision,
    store::{
        contract::StoreError,
        hit::{Hit, OwnedHit},
    },
    time::{Clock, Timestamp},
};

/// Background tasks that give charges or slots back, for each hit that may be in flight.
const GIVE_BACKS_PER_HIT: usize = 4;

/// Executes checks and settlements against Redis.
///
/// - At most `max_in_flight` hits are in flight. Further ones fail with [`StoreError::Overloaded`] and are not queued.
/// - A hit is sent by itself or in a batch, as the [`Batcher`] decides.
/// - A hit that may have to be undone runs in a task of its own; see [`UndoableHit`](undoable::UndoableHit). These
///   are hits on keys in several hash slots, and hits that take a concurrency slot.
pub(super) struct Executor {
    pub(super) router: Arc<Router>,
    batcher: Arc<Batcher>,
    pub(super) keys: KeySpace,
    pub(super) clock: Clock,
    pub(super) timeouts: Timeouts,
    /// The bulkhead: one permit for each hit in flight.
    in_flight: Arc<Semaphore>,
    /// One permit for each background task that gives something back.
    give_backs: Arc<Semaphore>,
}

/// A hit whose route is known.
pub(super) struct PreparedHit {
    route: Route,
    pending: Arc<PendingHit>,
    /// The hit itself, if it may have to be undone.
    undoable: Option<Box<OwnedHit>>,
}

impl Executor {
    pub(super) fn new(router: Router, config: RedisConfig) -> Executor {
        let timeouts = config.timeouts;
        let router = Arc::new(router);
        let in_flight = timeouts.max_in_flight.min(Semaphore::MAX_PERMITS);
        let give_backs = in_flight.saturating_mul(GIVE_BACKS_PER_HIT);
        let give_backs = give_backs.min(Semaphore::MAX_PERMITS);
        Executor {
            batcher: Batcher::new(Arc::clone(&router), timeouts),
            router,
            keys: config.keys,
            clock: config.clock,
            timeouts,
            in_flight: Arc::new(Semaphore::new(in_flight)),
            give_backs: Arc::new(Semaphore::new(give_backs)),
        }
    }

    /// Finds the connection for a hit, and copies what the call needs of it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if there is no connection.
    pub(super) fn prepare(&self, hit: Hit<'_>) -> Result<PreparedHit, StoreError> {
        let groups = hit.policy.groups();
        let names = self.keys.key_names(groups, |group| hit.key_for(group));
        let route = self.route(&names[0])?;
        let takes_slot = !hit.is_read_only() && hit.policy.has_concurrency_limit();
        let is_undoable = takes_slot || !self.router.same_node(&names);
        let command = CheckCommand {
            policy: hit.policy.clone(),
            scope: Scope::Policy,
            params: hit.params(),
            is_denied: false,
            now: self.manual_now(),
        };
        Ok(PreparedHit {
            route,
            pending: Arc::new(PendingHit { command, names }),
            undoable: is_undoable.then(|| Box::new(OwnedHit::new(hit))),
        })
    }

    /// Decides a hit, and charges it if it is allowed.
    ///
    /// The rare branches are boxed: a future that waits for its batch stays small.
    pub(super) async fn check(
        self: Arc<Executor>,
        prepared: PreparedHit,
    ) -> Result<Decision, StoreError> {
        let PreparedHit {
            route,
            pending,
            undoable,
        } = prepared;
        let deadline = Instant::now() + self.timeouts.timeout;
        if let Some(hit) = undoable {
            return Box::pin(self.check_undoable(route, pending, *hit, deadline)).await;
        }
        let Ok(_permit) = self.in_flight.try_acquire() else {
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
            Dispatch::Batched(outcome) => {
                match tokio::time::timeout_at(deadline.into(), outcome).await {
                    Ok(Ok(BatchOutcome::Decided(decision))) => return decision,
                    Ok(Ok(BatchOutcome::SendSingle { skip_fast_script })) => {
                        (None, skip_fast_script)
                    }
                    Ok(Err(_)) | Err(_) => return Err(StoreError::TimedOut),
                }
            }
        };
        let decision = self.check_single(&route, &pending, deadline, skip_fast_script);
        Box::pin(self.with_deadline(&route, deadline, decision)).await
    }

    /// Awaits a call until its deadline, and counts a timeout for the circuit breaker.
    async fn with_deadline<T>(
        &self,
        route: &Route,
        deadline: Instant,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let result = tokio::time::timeout_at(deadline.into(), call).await;
        result.unwrap_or_else(|_| {
            self.router.record_timeout(route, self.elapsed(deadline));
            Err(StoreError::TimedOut)
        })
    }

    /// The time since a call with this deadline started.
    fn elapsed(&self, deadline: Instant) -> Duration {
        self.timeouts.timeout + deadline.elapsed()
    }

    /// Decides a hit in a call of its own: by the bucket script if it applies, else by the general one.
    async fn check_single(
        &self,
        route: &Route,
        pending: &PendingHit,
        deadline: Instant,
        skip_fast_script: bool,
    ) -> Result<Decision, StoreError> {
        let PendingHit { command, names } = pending;
        let bucket = BucketCommand::new(command).filter(|_| !skip_fast_script);
        if let Some(bucket) = bucket {
            let decision = call::send(&bucket, names, &self.router, route.clone(), deadline);
            if let Some(decision) = decision.await? {
                return Ok(decision);
            }
        }
        let reply = call::send(command, names, &self.router, route.clone(), deadline);
        Ok(reply.await?.decision())
    }

    /// The connection for a Redis key.
    fn route(&self, name: &str) -> Result<Route, StoreError> {
        let route = self.router.route(name);
        route.ok_or(StoreError::Unavailable { source: None })
    }

    /// The time of a manual clock. Otherwise the scripts read the server's clock.
    fn manual_now(&self) -> Option<Timestamp> {
        self.clock.is_manual().then(|| self.clock.now())
    }
}

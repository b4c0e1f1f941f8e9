//! The store whose budgets all instances of a service share.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot},
};

use crate::store::redis::{
    batch::PendingHit,
    call::{Call, ResetCommand, SettleCommand},
    command::check::{CheckCommand, Scope},
    config::{RedisConfig, Timeouts},
    connection::{
        external,
        router::{Route, Router},
    },
    keyspace::{KeyNames, KeySpace},
};
use crate::{
    budget::Adjustment,
    decision::Decision,
    key_set::KeySet,
    policy::Policy,
    store::{
        contract::{Settlement, Store, StoreError, StoreFuture},
        hit::Hit,
        receipt::Receipt,
    },
    time::{Clock, Timestamp},
};

/// Tasks that give something back, for each hit that may be under way.
const GIVE_BACKS_PER_HIT: usize = 4;

/// A store in Redis: every instance that uses the same server and prefix spends the same budgets.
///
/// A decision is one script call and one round trip, decided on the server's clock. Nobody waits for
/// a connection: while there is none, the limiter's failure mode decides. A call that the server gets
/// to after its time budget does nothing.
///
/// Clones share everything.
///
/// ```no_run
/// use ratelimit_core::{Limiter, RedisConfig, RedisStore};
///
/// let store = RedisStore::new(RedisConfig::new("redis://127.0.0.1:6379")?);
/// let limiter = Limiter::new(store);
/// # Ok::<(), ratelimit_core::InvalidRedisConfig>(())
/// ```
#[derive(Clone)]
pub struct RedisStore {
    shared: Arc<RedisInner>,
}

pub(super) struct RedisInner {
    pub(super) router: Router,
    keys: KeySpace,
    clock: Clock,
    pub(super) timeouts: Timeouts,
    /// Places for hits under way; who finds none is not queued.
    pub(super) in_flight: Arc<Semaphore>,
    /// Permits for tasks that give something back, which nobody waits for.
    pub(super) give_backs: Arc<Semaphore>,
}

impl RedisStore {
    /// A store that connects as soon as it is used, and again whenever it has to.
    pub fn new(config: RedisConfig) -> RedisStore {
        let router = Router::new(&config);
        RedisStore::with_router(router, config)
    }

    /// A store on a connection that the application already has; `config`'s address is not used.
    ///
    /// What is lost against [`RedisStore::new`]: nobody mends the connection when it breaks, nobody
    /// notices a server that answers no more (each decision then takes its whole time budget), and it
    /// dies with the runtime that made it.
    pub fn from_multiplexed(
        connection: redis::aio::MultiplexedConnection,
        config: RedisConfig,
    ) -> RedisStore {
        RedisStore::with_router(
            Router::external(external::ExternalMultiplexed(connection)),
            config,
        )
    }

    /// A store on a cluster connection that the application already has.
    ///
    /// What is lost against [`RedisStore::new`]: that connection sends a command again when its answer
    /// is lost, so a lost answer can count a hit twice, and a dead node delays calls to it until their
    /// time budget ends.
    #[cfg(feature = "redis-cluster")]
    pub fn from_cluster(
        connection: redis::cluster_async::ClusterConnection,
        config: RedisConfig,
    ) -> RedisStore {
        RedisStore::with_router(
            Router::external(external::ExternalCluster(connection)),
            config,
        )
    }

    /// A store on a pool of connections that the application already has.
    ///
    /// What is lost against [`RedisStore::new`]: a decision waits for a connection to be free, each
    /// check-out may cost a round trip of its own, and while the server is gone each decision takes
    /// its whole time budget.
    #[cfg(feature = "bb8")]
    pub fn from_pool(
        pool: bb8::Pool<bb8_redis::RedisConnectionManager>,
        config: RedisConfig,
    ) -> RedisStore {
        RedisStore::with_router(Router::external(external::ExternalPool(pool)), config)
    }

    fn with_router(router: Router, config: RedisConfig) -> RedisStore {
        let in_flight = config.timeouts.most_in_flight.min(Semaphore::MAX_PERMITS);
        let give_backs = (in_flight.saturating_mul(GIVE_BACKS_PER_HIT)).min(Semaphore::MAX_PERMITS);
        let shared = RedisInner {
            router,
            in_flight: Arc::new(Semaphore::new(in_flight)),
            give_backs: Arc::new(Semaphore::new(give_backs)),
            keys: config.keys,
            clock: config.clock,
            timeouts: config.timeouts,
        };
        RedisStore {
            shared: Arc::new(shared),
        }
    }

    /// Connects, and tells whether that worked `within` the given time.
    ///
    /// Not needed before use: a store that is not connected yet leaves decisions to the failure mode.
    pub async fn wait_connected(&self, within: Duration) -> bool {
        let connected = self.shared.router.wait_connected();
        tokio::time::timeout(within, connected).await.is_ok()
    }

    /// Deletes the reserved key that a connection was tried out with, which else expires in a second.
    ///
    /// For whoever uses a prefix once and leaves nothing behind.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub async fn delete_probe_key(&self) -> Result<(), StoreError> {
        let name = self.shared.keys.probe_key(|_| true);
        self.shared.delete(&name).await
    }

    /// Deletes the values of `keys` under `policy`.
    ///
    /// For tools that use a prefix once and leave nothing behind. Use [`Store::reset`] for keys that are in use:
    /// after a deletion, a receipt from before credits what was charged since.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub async fn delete(&self, policy: &Policy, keys: &KeySet) -> Result<(), StoreError> {
        let hit = Hit::for_keys(policy, keys);
        let names = self
            .shared
            .keys
            .key_names(policy.groups(), |group| hit.key_for(group));
        for name in &names {
            self.shared.delete(name).await?;
        }
        Ok(())
    }
}

impl RedisInner {
    pub(super) fn route(&self, name: &str) -> Result<Route, StoreError> {
        let route = self.router.route(name);
        route.ok_or(StoreError::Unavailable { source: None })
    }

    async fn delete(&self, name: &str) -> Result<(), StoreError> {
        let route = self.route(name)?;
        let mut cmd = redis::cmd("DEL");
        cmd.arg(name);
        let deleted = tokio::time::timeout(self.timeouts.time_budget, route.send(cmd)).await;
        match deleted {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(StoreError::refused(error)),
            Err(_) => Err(StoreError::TimedOut),
        }
    }

    /// The time, where it is not the server's to tell.
    pub(super) fn manual_now(&self) -> Option<Timestamp> {
        self.clock.is_manual().then(|| self.clock.now())
    }

    async fn settle(
        self: Arc<RedisInner>,
        receipt: Receipt,
        change: Adjustment,
    ) -> Result<Settlement, StoreError> {
        let deadline = Instant::now() + self.timeouts.time_budget;
        let names = self.key_names(&receipt);
        if self.router.same_node(&names) {
            let scope = Scope::Policy;
            return self.settle_scope(&receipt, scope, change, deadline).await;
        }
        // A task goes on when its caller is dropped, so that the change is made on all keys.
        let route = names.iter().find_map(|name| self.router.route(name));
        let route = route.ok_or(StoreError::Unavailable { source: None })?;
        let (sender, settled) = oneshot::channel();
        let runtime = route.runtime().cloned().unwrap_or_else(Handle::current);
        runtime.spawn(async move {
            let settling = self.settle_across_slots(&receipt, names.len(), change, deadline);
            let _ = sender.send(settling.await);
        });
        // The connection's runtime may not be driven.
        match tokio::time::timeout_at(deadline.into(), settled).await {
            Ok(Ok(settled)) => settled,
            Ok(Err(_)) | Err(_) => Err(StoreError::TimedOut),
        }
    }

    /// The names of all keys that were charged.
    pub(super) fn key_names(&self, receipt: &Receipt) -> KeyNames {
        let groups = receipt.policy().groups();
        self.keys.key_names(groups, |group| receipt.key_for(group))
    }

    /// Changes what keys of different nodes were charged; all are tried, also when one does not answer.
    async fn settle_across_slots(
        &self,
        receipt: &Receipt,
        count: usize,
        change: Adjustment,
        deadline: Instant,
    ) -> Result<Settlement, StoreError> {
        let mut settled = Ok(Settlement::Unchanged);
        for number in 0..count {
            let scope = Scope::Group(number);
            let changed = self.settle_scope(receipt, scope, change, deadline).await;
            settled = match (settled, changed) {
                (Err(error), _) | (_, Err(error)) => Err(error),
                (Ok(Settlement::LeaseLost), _) | (_, Ok(Settlement::LeaseLost)) => {
                    Ok(Settlement::LeaseLost)
                }
                (Ok(Settlement::Unchanged), Ok(changed)) => Ok(changed),
                (Ok(settled), Ok(_)) => Ok(settled),
            };
        }
        settled
    }

    /// Changes what the keys of one call were charged.
    pub(super) async fn settle_scope(
        &self,
        receipt: &Receipt,
        scope: Scope,
        change: Adjustment,
        deadline: Instant,
    ) -> Result<Settlement, StoreError> {
        let groups = scope.groups(receipt.policy());
        let names = self.keys.key_names(groups, |group| receipt.key_for(group));
        let route = self.route(&names[0])?;
        let settlement = SettleCommand {
            receipt,
            scope,
            change,
            now: self.manual_now(),
        };
        let call = Call::settle(&settlement, &names);
        let sent = call.send(&self.router, route, deadline);
        let settled = tokio::time::timeout_at(deadline.into(), sent).await;
        settled.unwrap_or(Err(StoreError::TimedOut))
    }

    async fn reset(&self, route: Route, names: &[String]) -> Result<(), StoreError> {
        let reset = ResetCommand {
            now: self.manual_now(),
        };
        let deadline = Instant::now() + self.timeouts.time_budget;
        let call = Call::reset(&reset, names);
        let forgotten = call.send(&self.router, route, deadline);
        let forgotten = tokio::time::timeout_at(deadline.into(), forgotten).await;
        forgotten.unwrap_or(Err(StoreError::TimedOut))
    }
}

impl Store for RedisStore {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Decision> {
        let shared = Arc::clone(&self.shared);
        let groups = hit.policy.groups();
        let names = shared.keys.key_names(groups, |group| hit.key_for(group));
        let route = match shared.route(&names[0]) {
            Ok(route) => route,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        let is_undoable = !hit.is_read_only() && hit.policy.has_concurrency_limit();
        let is_undoable = is_undoable || !shared.router.same_node(&names);
        let keys = is_undoable.then(|| Box::new(hit.keys()));
        let command = CheckCommand {
            policy: hit.policy.clone(),
            scope: Scope::Policy,
            params: hit.params(),
            is_denied: false,
            now: shared.manual_now(),
        };
        let pending = Arc::new(PendingHit { command, names });
        StoreFuture::pending(shared.check(route, pending, keys))
    }

    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        let shared = Arc::clone(&self.shared);
        let receipt = receipt.clone();
        StoreFuture::pending(shared.settle(receipt, change))
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        let shared = Arc::clone(&self.shared);
        let hit = Hit::for_keys(policy, keys);
        let names = shared
            .keys
            .key_names(policy.groups(), |group| hit.key_for(group));
        StoreFuture::pending(async move {
            for name in names {
                let route = shared.route(&name)?;
                shared.reset(route, &[name]).await?;
            }
            Ok(())
        })
    }

    /// Has five seconds, so that a slot is released over the next connection if this one is gone. A holder that is
    /// dropped outside of a runtime is released where the connection lives.
    fn release_in_background(&self, receipt: &Receipt) {
        let (shared, receipt) = (Arc::clone(&self.shared), receipt.clone());
        let released = async move { shared.release_late(&receipt).await };
        let otherwise = || self.shared.router.runtime();
        self.shared.spawn_give_back(otherwise, released);
    }

    fn manual_clock(&self) -> Option<Clock> {
        let clock = &self.shared.clock;
        clock.is_manual().then(|| clock.clone())
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("keys", &self.shared.keys)
            .field("clock", &self.shared.clock)
            .field("patience", &self.shared.timeouts)
            .finish_non_exhaustive()
    }
}

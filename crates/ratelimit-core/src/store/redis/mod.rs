//! The Redis store: every check is one call of a Lua script, decided on the server.
//!
//! Modules import in one direction: `wire`, `script`, `command` (messages), `connection`, `call` (one call),
//! `batch` (several hits in one call), `execute` (one check), and the store on top.

mod batch;
mod call;
mod command;
mod config;
mod connection;
mod error;
mod execute;
mod hash_slot;
mod keyspace;
mod script;
mod url;
mod wire;

use std::{fmt, sync::Arc, time::Duration};

pub use self::{config::RedisConfig, error::InvalidRedisConfig};
use crate::store::redis::{
    connection::{external, router::Router},
    execute::Executor,
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
    time::Clock,
};

/// A store in Redis. Every instance that uses the same server and prefix spends the same budgets.
///
/// - A check is one script call and one round trip, decided on the server's clock.
/// - Concurrent checks of a policy are sent in batches; each is answered as if it had been sent by itself.
/// - No check waits for a connection. While there is none, the limiter's failure mode decides.
/// - A call that Redis executes after its timeout does nothing.
/// - A connection that breaks is replaced in the background.
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
    executor: Arc<Executor>,
}

impl RedisStore {
    /// A store that connects in the background when it is first used, and again when the connection breaks.
    pub fn new(config: RedisConfig) -> RedisStore {
        let router = Router::new(&config);
        RedisStore::with_router(router, config)
    }

    /// A store on a connection that the application already has. The address in `config` is not used.
    ///
    /// Differences from [`RedisStore::new`]:
    ///
    /// - The store does not replace the connection when it breaks.
    /// - The store has no circuit breaker: while the server does not answer, each check takes its whole timeout.
    /// - The connection ends with the runtime that made it.
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
    /// Differences from [`RedisStore::new`]:
    ///
    /// - Such a connection sends a command again when its reply is lost, so a hit can be charged twice.
    /// - The store has no circuit breaker: calls to a node that is down take their whole timeout.
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
    /// Differences from [`RedisStore::new`]:
    ///
    /// - A check waits for a free connection, and a check-out may cost a round trip of its own.
    /// - The store has no circuit breaker: while the server is gone, each check takes its whole timeout.
    #[cfg(feature = "bb8")]
    pub fn from_pool(
        pool: bb8::Pool<bb8_redis::RedisConnectionManager>,
        config: RedisConfig,
    ) -> RedisStore {
        RedisStore::with_router(Router::external(external::ExternalPool(pool)), config)
    }

    fn with_router(router: Router, config: RedisConfig) -> RedisStore {
        RedisStore {
            executor: Arc::new(Executor::new(router, config)),
        }
    }

    /// Connects, and returns whether that succeeded `within` the given time.
    ///
    /// Not needed before use: while the store is not connected, the failure mode decides.
    pub async fn wait_connected(&self, within: Duration) -> bool {
        let connected = self.executor.router.wait_connected();
        tokio::time::timeout(within, connected).await.is_ok()
    }

    /// Deletes the reserved key of the handshake, which otherwise expires after a second.
    ///
    /// For tools that use a prefix once and leave nothing behind.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if there is no connection, or the server refuses or does not answer in time.
    pub async fn delete_probe_key(&self) -> Result<(), StoreError> {
        self.executor.delete_probe_key().await
    }

    /// Deletes the values of `keys` under `policy`.
    ///
    /// For tools that use a prefix once and leave nothing behind. Use [`Store::reset`] for keys that are in use:
    /// after a deletion, a receipt from before credits what was charged since.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if there is no connection, or the server refuses or does not answer in time.
    pub async fn delete(&self, policy: &Policy, keys: &KeySet) -> Result<(), StoreError> {
        self.executor.delete(policy, keys).await
    }
}

impl Store for RedisStore {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Decision> {
        match self.executor.prepare(hit) {
            Ok(prepared) => {
                let executor = Arc::clone(&self.executor);
                StoreFuture::pending(executor.check(prepared))
            }
            Err(error) => StoreFuture::ready(Err(error)),
        }
    }

    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        let executor = Arc::clone(&self.executor);
        let receipt = receipt.clone();
        StoreFuture::pending(executor.settle(receipt, change))
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        let executor = Arc::clone(&self.executor);
        let names = executor.key_names(policy, keys);
        StoreFuture::pending(async move { executor.reset(&names).await })
    }

    /// Tries for five seconds, over a new connection if this one breaks. Without a current runtime, the task runs on
    /// that of the connection.
    fn release_in_background(&self, receipt: &Receipt) {
        let (executor, receipt) = (Arc::clone(&self.executor), receipt.clone());
        let release = async move { executor.release_late(&receipt).await };
        let fallback_runtime = || self.executor.router.runtime();
        self.executor.spawn_give_back(fallback_runtime, release);
    }

    fn manual_clock(&self) -> Option<Clock> {
        let clock = &self.executor.clock;
        clock.is_manual().then(|| clock.clone())
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("keys", &self.executor.keys)
            .field("clock", &self.executor.clock)
            .field("timeouts", &self.executor.timeouts)
            .finish_non_exhaustive()
    }
}

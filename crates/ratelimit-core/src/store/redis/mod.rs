//! The Redis store: every check is one call of a Lua script, decided on the server.
//!
//! Modules import in one direction: each only those above it in this table. The store uses `execute`.
//!
//! | module | content |
//! |---|---|
//! | `wire` | numbers and codes that Rust and Lua share |
//! | `hash_slot`, `keyspace` | hash slots, and names of Redis keys |
//! | `script` | scripts, assembled from `lua/` |
//! | `command` | one message each: encoding, decoding |
//! | `error`, `url`, `config` | settings |
//! | `connection` | connections that reconnect, routing, circuit breaker, clock offset |
//! | `call` | one script call with its repetitions |
//! | `batch` | several hits in one call |
//! | `execute` | one check, settlement or reset |

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
mod tls;
mod url;
mod wire;

use std::{fmt, sync::Arc, time::Duration};

pub use self::{config::RedisConfig, error::InvalidRedisConfig};
use crate::store::redis::{
    connection::{external, router::Router},
    execute::{Executor, NoRoute},
};
use crate::{
    budget::Adjustment,
    decision::Charged,
    key_set::KeySet,
    policy::Policy,
    store::{
        contract::{Settlement, Store, StoreError, StoreFuture},
        hit::{Hit, OwnedHit},
        joint::JointHit,
        receipt::Receipt,
    },
    time::Clock,
};

/// A store in Redis. Every instance that uses the same server and prefix spends the same budgets.
///
/// - A check is one script call and one round trip, decided on the server's clock.
/// - Concurrent checks of a policy are sent in batches; each is answered as if it had been sent by itself.
/// - In a cluster, a policy whose keys are in several hash slots takes one call for each key. A denial refunds the
///   charges before it.
/// - The first checks wait for the first attempt to connect, at most for their timeout. No later check waits for a
///   connection: while there is none, the limiter's failure mode decides.
/// - A call that Redis executes after its timeout does nothing.
/// - A connection that breaks is replaced in the background.
///
/// Clones share everything. The background task ends with the last clone and the last check in flight.
///
/// A check that is dropped before it is decided may be charged or not, once at most. A concurrency slot that it has
/// taken is released in the background.
///
/// Do not use it while tokio's clock is paused (`start_paused`): tokio then ends every timeout before a reply can arrive, so
/// the failure mode decides. Give [`RedisConfig::clock`] a manual clock instead.
///
/// ```no_run
/// use ratelimit_core::{Limiter, RedisConfig, RedisStore};
///
/// let store = RedisStore::new(RedisConfig::new("redis://127.0.0.1:6379")?);
/// let limiter = Limiter::new(store);
/// # Ok::<(), ratelimit_core::InvalidRedisConfig>(())
/// ```
#[derive(Clone)]
#[doc(alias("distributed", "shared", "sentinel", "cluster"))]
pub struct RedisStore {
    /// Shared with the checks in flight, which outlive the store if it is dropped.
    executor: Arc<Executor>,
}

impl RedisStore {
    /// A store that connects in the background, and again when the connection breaks.
    ///
    /// - Made inside of a tokio runtime it connects at once, otherwise with the first check, on the runtime of that
    ///   check.
    /// - Checks that come before the first attempt to connect has ended wait for it, at most for their timeout. If it
    ///   fails or takes longer, the failure mode decides; otherwise the check then has its whole timeout.
    ///
    /// ```no_run
    /// use ratelimit_core::{Key, Limiter, Policy, RedisConfig, RedisStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let config = RedisConfig::new("redis+cluster://10.0.0.1:7000,10.0.0.2:7000")?;
    /// let limiter = Limiter::new(RedisStore::new(config.prefix("shop")?));
    ///
    /// let verdict = limiter.check(&Policy::parse("login", "5/min")?, &Key::new("alice")?).await;
    /// println!("allowed: {}", verdict.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
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
    /// - Hits are not batched.
    /// - The first call reads the server's TIME before it is sent, so that calls can carry a deadline.
    ///
    /// The server must be a master. The store does not check its version.
    ///
    /// The connection is a type of the crate `redis`, a public dependency: take the same major version as this crate
    /// (`docs/reference/features.md`).
    ///
    /// ```no_run
    /// use ratelimit_core::{RedisConfig, RedisStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let url = "redis://127.0.0.1:6379";
    /// let client = redis::Client::open(url)?;
    /// let connection = client.get_multiplexed_async_connection().await?;
    /// let store = RedisStore::from_multiplexed(connection, RedisConfig::new(url)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_multiplexed(
        connection: redis::aio::MultiplexedConnection,
        config: RedisConfig,
    ) -> RedisStore {
        let router = Router::external(external::ExternalMultiplexed(connection));
        RedisStore::with_external(router, config)
    }

    /// A store on a cluster connection that the application already has.
    ///
    /// Differences from [`RedisStore::new`]:
    ///
    /// - Such a connection sends a command again when its reply is lost, so a hit can be charged twice.
    /// - The store has no circuit breaker: calls to a node that is down take their whole timeout.
    /// - Hits are not batched.
    /// - The clock offset for deadlines is one for all nodes, so their clocks should agree within milliseconds.
    ///
    /// The connection is a type of the crate `redis`, a public dependency: take the same major version as this crate
    /// (`docs/reference/features.md`).
    ///
    /// ```no_run
    /// use ratelimit_core::{RedisConfig, RedisStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let client = redis::cluster::ClusterClient::new(vec!["redis://10.0.0.1:7000"])?;
    /// let connection = client.get_async_connection().await?;
    /// let config = RedisConfig::new("redis+cluster://10.0.0.1:7000")?;
    /// let store = RedisStore::from_cluster(connection, config);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "redis-cluster")]
    pub fn from_cluster(
        connection: redis::cluster_async::ClusterConnection,
        config: RedisConfig,
    ) -> RedisStore {
        let router = Router::external(external::ExternalCluster(connection));
        RedisStore::with_external(router, config)
    }

    /// A store on a pool of connections that the application already has.
    ///
    /// Differences from [`RedisStore::new`]:
    ///
    /// - A check waits for a free connection, and a check-out may cost a round trip of its own.
    /// - The store has no circuit breaker: while the server is gone, each check takes its whole timeout.
    /// - Hits are not batched.
    ///
    /// The pool is a type of the crates `bb8` and `bb8-redis`, which are public dependencies: take the same versions as
    /// this crate (`docs/reference/features.md`).
    ///
    /// ```no_run
    /// use bb8_redis::RedisConnectionManager;
    /// use ratelimit_core::{RedisConfig, RedisStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let url = "redis://127.0.0.1:6379";
    /// let pool = bb8::Pool::builder().build(RedisConnectionManager::new(url)?).await?;
    /// let store = RedisStore::from_pool(pool, RedisConfig::new(url)?);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "bb8")]
    pub fn from_pool(
        pool: bb8::Pool<bb8_redis::RedisConnectionManager>,
        config: RedisConfig,
    ) -> RedisStore {
        let router = Router::external(external::ExternalPool(pool));
        RedisStore::with_external(router, config)
    }

    /// A store over a connection that the application already has. Logs the settings that have no effect on it.
    fn with_external(router: Router, config: RedisConfig) -> RedisStore {
        let settings = config.connection_settings();
        if !settings.is_empty() {
            let settings = settings.join(", ");
            tracing::warn!(
                settings,
                "these settings of RedisConfig have no effect on a connection of the application"
            );
        }
        RedisStore::with_router(router, config)
    }

    /// A store over the connections of `router`. Logs settings that are valid and probably wrong.
    fn with_router(router: Router, config: RedisConfig) -> RedisStore {
        config.log_doubtful_settings();
        RedisStore {
            executor: Arc::new(Executor::new(router, config)),
        }
    }

    /// Connects, and returns whether that succeeded `within` the given time.
    ///
    /// - Not needed before use: while the store is not connected, the failure mode decides.
    /// - In a cluster it waits until all nodes of the first slot map are connected.
    /// - On a connection of the application it returns `true` immediately, without a call.
    /// - `false` stops nothing: the background task goes on connecting.
    ///
    /// ```no_run
    /// use ratelimit_core::{RedisConfig, RedisStore};
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let store = RedisStore::new(RedisConfig::new("redis://127.0.0.1:6379")?);
    /// if !store.wait_connected(Duration::from_secs(5)).await {
    ///     eprintln!("Redis is not reachable yet, the failure mode decides");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_connected(&self, within: Duration) -> bool {
        let connected = self.executor.router.wait_connected();
        tokio::time::timeout(within, connected).await.is_ok()
    }

    /// Deletes the reserved key of the handshake, which otherwise expires after a second.
    ///
    /// For tools that use a prefix once and leave nothing behind.
    ///
    /// - The next probe of an idle connection, every 500 ms, writes the key again.
    /// - In a cluster each node has a probe key of its own. This deletes that of one node.
    ///
    /// ```no_run
    /// use ratelimit_core::{RedisConfig, RedisStore};
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let config = RedisConfig::new("redis://127.0.0.1:6379")?.prefix("simulation-17")?;
    /// let store = RedisStore::new(config);
    /// if store.wait_connected(Duration::from_secs(5)).await {
    ///     store.delete_probe_key().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`StoreError::Unavailable`] if there is no connection.
    /// - [`StoreError::Refused`] if the server refuses DEL, or the connection breaks during the call.
    /// - [`StoreError::TimedOut`] if the server does not answer within [`RedisConfig::timeout`].
    pub async fn delete_probe_key(&self) -> Result<(), StoreError> {
        self.executor.delete_probe_key().await
    }

    /// Deletes the values of `keys` under `policy`.
    ///
    /// For tools that use a prefix once and leave nothing behind. Use [`Store::reset`] for keys that are in use:
    /// after a deletion, a receipt from before credits what was charged since.
    ///
    /// The keys are deleted one after another, in calls of their own. An error leaves the keys behind it.
    ///
    /// ```no_run
    /// use ratelimit_core::{Key, KeySet, Policy, RedisConfig, RedisStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let store = RedisStore::new(RedisConfig::new("redis://127.0.0.1:6379")?);
    /// let policy = Policy::parse("login", "5/min")?;
    /// store.delete(&policy, &KeySet::new(Key::new("alice")?)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`StoreError::Unavailable`] if there is no connection to the server of a key.
    /// - [`StoreError::Refused`] if the server refuses DEL, the connection breaks during the call, or the key has moved
    ///   to another node of a cluster.
    /// - [`StoreError::TimedOut`] if the server does not answer within [`RedisConfig::timeout`].
    pub async fn delete(&self, policy: &Policy, keys: &KeySet) -> Result<(), StoreError> {
        self.executor.delete(policy, keys).await
    }
}

impl Store for RedisStore {
    /// Decides a hit. Nothing is sent before the future is polled, and its timeout starts then.
    ///
    /// The connection is chosen now. A hit that finds none is answered by a ready future.
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        match self.executor.prepare(hit) {
            Ok(prepared) => {
                let executor = Arc::clone(&self.executor);
                // The time runs from the first poll: a future that nothing polls spends none of it.
                StoreFuture::pending(async move {
                    let deadline = executor.deadline();
                    executor.check(prepared, deadline).await
                })
            }
            Err(NoRoute::Connecting) => {
                let executor = Arc::clone(&self.executor);
                StoreFuture::pending(executor.check_when_connected(OwnedHit::new(hit)))
            }
            // Without a box: during an outage every hit takes this path.
            Err(NoRoute::Disconnected) => {
                StoreFuture::ready(Err(StoreError::Unavailable { source: None }))
            }
        }
    }

    /// Decides a joint hit in one call. In a cluster, members in several hash slots take a call each, and a denial
    /// refunds the charges before it.
    fn hit_joint(&self, members: &[JointHit<'_>]) -> StoreFuture<Vec<Charged>> {
        let executor = Arc::clone(&self.executor);
        let members = members.iter();
        let members = members.map(|member| (OwnedHit::new(member.hit), member.role));
        StoreFuture::pending(executor.check_joint(members.collect()))
    }

    /// Changes a charge. On keys in several hash slots the change goes on when the future is dropped.
    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        let executor = Arc::clone(&self.executor);
        let receipt = receipt.clone();
        StoreFuture::pending(executor.settle(receipt, change))
    }

    /// Whether the keys of a hit are in one hash slot of a cluster.
    fn decides_in_one_step(&self, hit: &Hit<'_>) -> bool {
        let executor = &self.executor;
        let names = executor
            .keys
            .key_names(hit.policy.groups(), |group| hit.key_for(group));
        executor.router.same_node(&names)
    }

    /// Clears what keys have spent, one call for each key. Dropping the future leaves the remaining keys.
    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        let executor = Arc::clone(&self.executor);
        let names = executor.key_names(policy, keys);
        StoreFuture::pending(async move { executor.reset(&names).await })
    }

    /// Tries for five seconds, over a new connection if this one breaks. Without a current runtime, the task runs on
    /// that of the connection.
    fn release_in_background(&self, receipt: &Receipt) {
        let policy = Arc::clone(receipt.policy().shared_name());
        let (executor, receipt) = (Arc::clone(&self.executor), receipt.clone());
        let release = async move { executor.release_late(&receipt).await };
        // A reservation may be dropped outside of any runtime.
        let fallback_runtime = || self.executor.router.runtime();
        let executor = &self.executor;
        executor.spawn_give_back(&policy, fallback_runtime, release);
    }

    /// The clock of [`RedisConfig::clock`], if it is a manual one. Otherwise the server's clock decides.
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
            // Neither addresses nor passwords: only settings that are safe in a log.
            .field("timeouts", &self.executor.timeouts)
            .finish_non_exhaustive()
    }
}

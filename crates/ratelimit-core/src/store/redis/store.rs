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

use super::{
    access::{Access, Way},
    batch::Asking,
    call::{Call, Reset, Settlement},
    config::{Patience, RedisConfig},
    existing,
    keys::KeySpace,
    question::{Part, Question},
};
use crate::{
    decision::Decision,
    keys::Keys,
    policy::{Change, Policy},
    store::{
        contract::{Settled, Store, StoreError, StoreFuture},
        hit::Hit,
        receipt::Receipt,
    },
    time::{Clock, Timestamp},
};

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
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) access: Access,
    keys: KeySpace,
    clock: Clock,
    pub(super) patience: Patience,
    /// Places for hits under way; who finds none is not queued.
    pub(super) places: Arc<Semaphore>,
}

impl RedisStore {
    /// A store that connects as soon as it is used, and again whenever it has to.
    pub fn new(config: RedisConfig) -> RedisStore {
        let access = Access::new(&config);
        RedisStore::over(access, config)
    }

    /// A store on a connection that the application already has; `config`'s address is not used.
    ///
    /// What is lost against [`RedisStore::new`]: nobody mends the connection when it breaks, nobody
    /// notices a server that answers no more (each decision then takes its whole time budget), and it
    /// dies with the runtime that made it. The first call carries no deadline.
    pub fn from_multiplexed(
        connection: redis::aio::MultiplexedConnection,
        config: RedisConfig,
    ) -> RedisStore {
        RedisStore::over(Access::existing(existing::Multiplexed(connection)), config)
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
        RedisStore::over(Access::existing(existing::Cluster(connection)), config)
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
        RedisStore::over(Access::existing(existing::Pool(pool)), config)
    }

    fn over(access: Access, config: RedisConfig) -> RedisStore {
        let shared = Shared {
            access,
            places: Arc::new(Semaphore::new(config.patience.most_in_flight)),
            keys: config.keys,
            clock: config.clock,
            patience: config.patience,
        };
        RedisStore {
            shared: Arc::new(shared),
        }
    }

    /// Connects, and tells whether that worked `within` the given time.
    ///
    /// Not needed before use: a store that is not connected yet leaves decisions to the failure mode.
    pub async fn connected(&self, within: Duration) -> bool {
        let connected = self.shared.access.connected();
        tokio::time::timeout(within, connected).await.is_ok()
    }

    /// Deletes the reserved key that a connection was tried out with, which else expires in a second.
    ///
    /// For whoever uses a prefix once and leaves nothing behind.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub async fn forget_probe(&self) -> Result<(), StoreError> {
        let name = self.shared.keys.probe(|_| true);
        let way = self.shared.way_to(&name)?;
        let mut cmd = redis::cmd("DEL");
        cmd.arg(&name);
        let deleted = tokio::time::timeout(self.shared.patience.time_budget, way.call(cmd)).await;
        match deleted {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(StoreError::refused(error)),
            Err(_) => Err(StoreError::TimedOut),
        }
    }
}

impl Shared {
    pub(super) fn way_to(&self, name: &str) -> Result<Way, StoreError> {
        let way = self.access.way_to(name);
        way.ok_or(StoreError::Unavailable { source: None })
    }

    /// The time, where it is not the server's to tell.
    pub(super) fn manual_now(&self) -> Option<Timestamp> {
        self.clock.is_manual().then(|| self.clock.now())
    }

    async fn settle(
        self: Arc<Shared>,
        receipt: Receipt,
        change: Change,
    ) -> Result<Settled, StoreError> {
        let deadline = Instant::now() + self.patience.time_budget;
        let groups = receipt.policy().groups();
        let names = self.keys.names(groups, |group| receipt.key_of(group));
        if self.access.is_one_call(&names) {
            let part = Part::All;
            return self.settle_part(&receipt, part, change, deadline).await;
        }
        // A task goes on when its caller is dropped, so that the change is made on all keys.
        let way = self.way_to(&names[0])?;
        let (sender, settled) = oneshot::channel();
        way.spawn(async move {
            let settling = self.settle_apart(&receipt, names.len(), change, deadline);
            let _ = sender.send(settling.await);
        });
        settled.await.unwrap_or(Err(StoreError::TimedOut))
    }

    /// Changes what keys of different nodes were charged; all are tried, also when one does not answer.
    async fn settle_apart(
        &self,
        receipt: &Receipt,
        count: usize,
        change: Change,
        deadline: Instant,
    ) -> Result<Settled, StoreError> {
        let mut settled = Ok(Settled::Unchanged);
        for number in 0..count {
            let part = Part::Group(number);
            let changed = self.settle_part(receipt, part, change, deadline).await;
            settled = match (settled, changed) {
                (Err(error), _) | (_, Err(error)) => Err(error),
                (Ok(Settled::Lost), _) | (_, Ok(Settled::Lost)) => Ok(Settled::Lost),
                (Ok(Settled::Unchanged), Ok(changed)) => Ok(changed),
                (Ok(settled), Ok(_)) => Ok(settled),
            };
        }
        settled
    }

    /// Changes what the keys of one call were charged.
    pub(super) async fn settle_part(
        &self,
        receipt: &Receipt,
        part: Part,
        change: Change,
        deadline: Instant,
    ) -> Result<Settled, StoreError> {
        let groups = part.groups(receipt.policy());
        let names = self.keys.names(groups, |group| receipt.key_of(group));
        let way = self.way_to(&names[0])?;
        let settlement = Settlement {
            receipt,
            part,
            change,
            now: self.manual_now(),
        };
        let call = Call::settle(&settlement, &names);
        let sent = call.send(&self.access, way, deadline);
        let settled = tokio::time::timeout_at(deadline.into(), sent).await;
        settled.unwrap_or(Err(StoreError::TimedOut))
    }

    async fn reset(&self, way: Way, names: &[String]) -> Result<(), StoreError> {
        let reset = Reset {
            now: self.manual_now(),
        };
        let deadline = Instant::now() + self.patience.time_budget;
        let call = Call::reset(&reset, names);
        let forgotten = call.send(&self.access, way, deadline);
        let forgotten = tokio::time::timeout_at(deadline.into(), forgotten).await;
        forgotten.unwrap_or(Err(StoreError::TimedOut))
    }
}

impl Store for RedisStore {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Decision> {
        let shared = Arc::clone(&self.shared);
        let groups = hit.policy.groups();
        let names = shared.keys.names(groups, |group| hit.key_of(group));
        let way = match shared.way_to(&names[0]) {
            Ok(way) => way,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        let is_undoable = !hit.is_look() && hit.policy.holds_slots();
        let is_undoable = is_undoable || !shared.access.is_one_call(&names);
        let keys = is_undoable.then(|| Box::new(hit.keys()));
        let question = Question {
            policy: hit.policy.clone(),
            part: Part::All,
            asked: hit.asked(),
            is_denied: false,
            now: shared.manual_now(),
        };
        let asking = Arc::new(Asking { question, names });
        StoreFuture::later(shared.hit(way, asking, keys))
    }

    fn settle(&self, receipt: &Receipt, change: Change) -> StoreFuture<Settled> {
        let shared = Arc::clone(&self.shared);
        let receipt = receipt.clone();
        StoreFuture::later(shared.settle(receipt, change))
    }

    fn reset(&self, policy: &Policy, keys: &Keys) -> StoreFuture<()> {
        let shared = Arc::clone(&self.shared);
        let hit = Hit::by(policy, keys);
        let names = shared
            .keys
            .names(policy.groups(), |group| hit.key_of(group));
        StoreFuture::later(async move {
            for name in names {
                let way = shared.way_to(&name)?;
                shared.reset(way, &[name]).await?;
            }
            Ok(())
        })
    }

    /// Where a connection lives, so that it does not matter on which thread a holder is dropped.
    fn complete_in_background(&self, change: StoreFuture<Settled>) {
        let runtime = self.shared.access.runtime();
        if let Some(runtime) = runtime.or_else(|| Handle::try_current().ok()) {
            runtime.spawn(change);
        }
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
            .field("patience", &self.shared.patience)
            .finish_non_exhaustive()
    }
}

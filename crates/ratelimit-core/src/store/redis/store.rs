//! The store whose budgets all instances of a service share.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{RedisError, Value};
use tokio::sync::Semaphore;

use super::{
    access::{Access, Way},
    config::{Patience, RedisConfig},
    connect::{Ask, command},
    existing,
    keys::KeySpace,
    question::{Answer, Nonsense, Question},
    script::Script,
    trouble::Trouble,
};
use crate::{
    decision::Decision,
    key::Key,
    meter,
    policy::Policy,
    store::contract::{Hit, Store, StoreError, StoreFuture},
    time::Clock,
};

/// A call, and twice once more where the server said that nothing ran.
const MOST_CALLS: usize = 3;

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

struct Shared {
    access: Access,
    keys: KeySpace,
    clock: Clock,
    patience: Patience,
    /// Places for calls under way; who finds none is not queued.
    places: Semaphore,
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
            places: Semaphore::new(config.patience.most_in_flight),
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
        self.shared.reset(way, name).await
    }
}

impl Shared {
    fn way_to(&self, name: &str) -> Result<Way, StoreError> {
        let way = self.access.way_to(name);
        way.ok_or(StoreError::Unavailable { source: None })
    }

    async fn hit(
        &self,
        way: Way,
        name: String,
        question: Question,
    ) -> Result<Decision, StoreError> {
        let Ok(_place) = self.places.try_acquire() else {
            return Err(StoreError::Overloaded);
        };
        let deadline = Instant::now() + self.patience.time_budget;
        let asked = self.ask(way.clone(), &name, &question, deadline);
        let answer = tokio::time::timeout_at(deadline.into(), asked).await;
        answer.unwrap_or_else(|_| {
            if way.timed_out() {
                self.access.map_is_stale();
            }
            meter::ambiguous();
            Err(StoreError::TimedOut)
        })
    }

    async fn ask(
        &self,
        mut way: Way,
        name: &str,
        question: &Question,
        deadline: Instant,
    ) -> Result<Decision, StoreError> {
        let script = Script::of(&question.policy);
        let mut ask = Ask::Hash;
        let mut asking = false;
        for _ in 0..MOST_CALLS {
            let sent = Instant::now();
            let server_deadline = match question.now {
                Some(_) => None,
                None => way.clock().at(deadline),
            };
            let cmd = command(script, ask, name, question, server_deadline);
            let answer = if asking {
                way.call_asking(cmd).await
            } else {
                way.call(cmd).await
            };
            let error = match answer {
                Ok(answer) => match read(&way, question, &answer, sent)? {
                    Answer::Decided(decision) => return Ok(decision),
                    // The server's clock was set forward, or the call was late: nothing ran.
                    Answer::TooLate { .. } => continue,
                },
                Err(error) => error,
            };
            match Trouble::of(&error) {
                Trouble::MissingScript => ask = Ask::Text,
                Trouble::Moved(address) => {
                    self.access.map_is_stale();
                    way = self.redirected(&address)?;
                }
                Trouble::Ask(address) => {
                    way = self.redirected(&address)?;
                    (ask, asking) = (Ask::Text, true);
                }
                trouble => {
                    // An error about one key says nothing of who serves it.
                    if matches!(trouble, Trouble::Lost | Trouble::Down) {
                        self.access.map_is_stale();
                    }
                    return Err(failure(&way, &trouble, error));
                }
            }
        }
        Err(StoreError::TimedOut)
    }

    fn redirected(&self, address: &str) -> Result<Way, StoreError> {
        let way = self.access.way_at(address);
        if way.is_none() {
            self.access.map_is_stale();
        }
        way.ok_or(StoreError::Unavailable { source: None })
    }

    async fn reset(&self, way: Way, name: String) -> Result<(), StoreError> {
        let mut cmd = redis::cmd("DEL");
        cmd.arg(&name);
        let forgetting = async {
            let Err(mut error) = way.call(cmd.clone()).await else {
                return Ok(());
            };
            // Forgetting twice is forgetting once, so a redirection may simply be followed.
            if let Trouble::Moved(address) | Trouble::Ask(address) = Trouble::of(&error) {
                self.access.map_is_stale();
                match self.redirected(&address)?.call_asking(cmd).await {
                    Ok(_) => return Ok(()),
                    Err(again) => error = again,
                }
            }
            Err(failure(&way, &Trouble::of(&error), error))
        };
        let forgotten = tokio::time::timeout(self.patience.time_budget, forgetting).await;
        forgotten.unwrap_or(Err(StoreError::TimedOut))
    }
}

/// Reads an answer, and learns from it how the server is and what its clock shows.
fn read(
    way: &Way,
    question: &Question,
    answer: &Value,
    sent: Instant,
) -> Result<Answer, StoreError> {
    let received = Instant::now();
    let answer = match answer {
        Value::BulkString(bytes) => question.answer(bytes),
        _ => Err(Nonsense),
    };
    let answer = answer.map_err(|nonsense| {
        way.broken();
        StoreError::refused(nonsense)
    })?;
    way.answered();
    meter::round_trip(received - sent);
    let (Answer::Decided(Decision { now, .. }) | Answer::TooLate { now }) = &answer;
    if question.now.is_none() {
        way.clock().learn(*now, sent, received);
    }
    Ok(answer)
}

fn failure(way: &Way, trouble: &Trouble, error: RedisError) -> StoreError {
    match trouble {
        Trouble::Lost => {
            way.broken();
            meter::ambiguous();
            StoreError::unavailable(error)
        }
        Trouble::Down => {
            way.broken();
            StoreError::unavailable(error)
        }
        _ => StoreError::refused(error),
    }
}

impl Store for RedisStore {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Decision> {
        let shared = Arc::clone(&self.shared);
        let name = shared.keys.name(hit.policy, hit.key);
        let way = match shared.way_to(&name) {
            Ok(way) => way,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        let question = Question {
            policy: hit.policy.clone(),
            cost: hit.cost,
            now: shared.clock.is_manual().then(|| shared.clock.now()),
        };
        StoreFuture::later(async move { shared.hit(way, name, question).await })
    }

    fn reset(&self, policy: &Policy, key: &Key) -> StoreFuture<()> {
        let shared = Arc::clone(&self.shared);
        let name = shared.keys.name(policy, key);
        let way = match shared.way_to(&name) {
            Ok(way) => way,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        StoreFuture::later(async move { shared.reset(way, name).await })
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

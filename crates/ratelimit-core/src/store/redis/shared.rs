//! The store whose budgets all instances of a service share.

use std::{fmt, sync::Arc, time::Duration};

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::{
    config::RedisConfig,
    keys::KeySpace,
    link::{Connected, Link},
    question::Question,
    script::Script,
};
use crate::{
    decision::Decision,
    key::Key,
    policy::Policy,
    store::contract::{Hit, Store, StoreError, StoreFuture},
    time::Clock,
};

/// A store in Redis: every instance that uses the same server and prefix spends the same budgets.
///
/// A decision is one script call and one round trip, decided on the server's clock. Nobody waits for
/// a connection: while there is none, the limiter's failure mode decides.
///
/// Clones share one connection.
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
    link: Link,
    keys: KeySpace,
    clock: Clock,
}

impl RedisStore {
    /// A store that connects as soon as it is used, and again whenever it has to.
    pub fn new(config: RedisConfig) -> RedisStore {
        let shared = Shared {
            keys: config.keys.clone(),
            clock: config.clock.clone(),
            link: Link::new(config),
        };
        RedisStore {
            shared: Arc::new(shared),
        }
    }

    /// Connects, and tells whether that worked `within` the given time.
    ///
    /// Not needed before use: a store that is not connected yet leaves decisions to the failure mode.
    pub async fn connected(&self, within: Duration) -> bool {
        let connected = self.shared.link.connected();
        tokio::time::timeout(within, connected).await.is_ok()
    }

    /// Asks for the connection, or says that there is none.
    fn connection(&self) -> Result<Connected, StoreError> {
        let connected = self.shared.link.current();
        connected.ok_or(StoreError::Unavailable { source: None })
    }
}

impl Shared {
    async fn hit(
        &self,
        mut connected: Connected,
        name: String,
        question: Question,
    ) -> Result<Decision, StoreError> {
        let script = Script::of(&question.policy);
        let argument = question.argument();
        let ask = |command: &str, script: &str| {
            let mut cmd = redis::cmd(command);
            cmd.arg(script).arg(1).arg(&name).arg(&argument);
            cmd
        };
        let connection = &mut connected.connection;
        let mut answer = ask("EVALSHA", &script.hash).query_async(connection).await;
        if is_missing_script(&answer) {
            // The server says that nothing ran, so asking once more cannot count twice.
            answer = ask("EVAL", &script.text).query_async(connection).await;
        }
        let answer: Vec<u8> = answer.map_err(|error| self.failure(&connected, error))?;
        question.decision(&answer).map_err(StoreError::refused)
    }

    async fn reset(&self, mut connected: Connected, name: String) -> Result<(), StoreError> {
        let forgotten = redis::cmd("DEL")
            .arg(name)
            .query_async(&mut connected.connection)
            .await;
        forgotten.map_err(|error| self.failure(&connected, error))
    }

    fn failure(&self, connected: &Connected, error: RedisError) -> StoreError {
        if error.is_unrecoverable_error() || error.is_timeout() {
            self.link.report_broken(connected);
            return StoreError::unavailable(error);
        }
        StoreError::refused(error)
    }
}

fn is_missing_script<T>(answer: &Result<T, RedisError>) -> bool {
    let kind = answer.as_ref().err().map(RedisError::kind);
    kind == Some(ErrorKind::Server(ServerErrorKind::NoScript))
}

impl Store for RedisStore {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Decision> {
        let connected = match self.connection() {
            Ok(connected) => connected,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        let shared = Arc::clone(&self.shared);
        let name = shared.keys.name(hit.policy, hit.key);
        let question = Question {
            policy: hit.policy.clone(),
            cost: hit.cost,
            now: shared.clock.is_manual().then(|| shared.clock.now()),
        };
        StoreFuture::later(async move { shared.hit(connected, name, question).await })
    }

    fn reset(&self, policy: &Policy, key: &Key) -> StoreFuture<()> {
        let connected = match self.connection() {
            Ok(connected) => connected,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        let shared = Arc::clone(&self.shared);
        let name = shared.keys.name(policy, key);
        StoreFuture::later(async move { shared.reset(connected, name).await })
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("keys", &self.shared.keys)
            .field("clock", &self.shared.clock)
            .finish_non_exhaustive()
    }
}

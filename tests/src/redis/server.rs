//! The Redis that a test uses, wherever it comes from.

use std::{
    env,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use ratelimit_core::{Clock, RedisConfig, RedisStore};
use testcontainers::{ContainerAsync, GenericImage};

use super::{container, process::RedisProcess};

/// Longer than any pause of a busy machine: what is tested here is answers and not their speed.
const PATIENCE: Duration = Duration::from_secs(20);

/// A Redis to test with; it ends with this value, unless it was given from outside.
#[derive(Debug)]
pub struct TestRedis {
    url: String,
    _running: Running,
}

#[derive(Debug)]
#[expect(dead_code, reason = "held until the test ends")]
enum Running {
    Given,
    Process(RedisProcess),
    Container(Box<ContainerAsync<GenericImage>>),
}

impl TestRedis {
    /// Finds or starts a Redis.
    ///
    /// # Panics
    ///
    /// When there is none, and none can be started: a test that needs Redis never skips.
    pub async fn start() -> TestRedis {
        if let Ok(url) = env::var("RATELIMIT_TEST_REDIS_URL") {
            return TestRedis {
                url,
                _running: Running::Given,
            };
        }
        let by_choice = env::var("RATELIMIT_TEST_REDIS").is_ok_and(|choice| choice == "docker");
        if !by_choice && RedisProcess::binary().is_some() {
            let process = RedisProcess::start(&[]);
            return TestRedis {
                url: process.url(),
                _running: Running::Process(process),
            };
        }
        let (container, url) = container::start().await;
        TestRedis {
            url,
            _running: Running::Container(Box::new(container)),
        }
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A configuration with a prefix that no other test has.
    ///
    /// # Panics
    ///
    /// When the given address is not one of Redis.
    pub fn config(&self) -> RedisConfig {
        let config = RedisConfig::new(&self.url)
            .and_then(|config| config.prefix(&unique_prefix()))
            .expect("a valid address");
        as_asked(config).time_budget(PATIENCE)
    }

    /// A connected store on `clock`, with a prefix that no other test has.
    ///
    /// # Panics
    ///
    /// When Redis does not answer.
    pub async fn store(&self, clock: Clock) -> RedisStore {
        connected(self.config().clock(clock)).await
    }

    /// A plain connection, to look at what stores wrote.
    ///
    /// # Panics
    ///
    /// When Redis does not answer.
    pub fn connection(&self) -> redis::Connection {
        redis::Client::open(self.url())
            .and_then(|client| client.get_connection())
            .expect("a connection to Redis")
    }

    /// Asserts that every key there is has a time to live.
    ///
    /// # Panics
    ///
    /// When one has none.
    pub fn assert_every_key_expires(&self) {
        let mut connection = self.connection();
        let keys: Vec<String> = redis::cmd("KEYS")
            .arg("*")
            .query(&mut connection)
            .expect("the names of all keys");
        for key in keys {
            let ttl: i64 = redis::cmd("PTTL")
                .arg(&key)
                .query(&mut connection)
                .expect("the time to live of a key");
            // -2 is a key that has just expired.
            assert_ne!(ttl, -1, "{key} never expires");
        }
    }
}

/// Whether this run is without what makes Redis fast: `RATELIMIT_TEST_PLAIN=1`.
pub fn is_plain_run() -> bool {
    env::var("RATELIMIT_TEST_PLAIN").is_ok_and(|plain| plain == "1")
}

/// The configuration, with each hit in a call of its own in a plain run.
#[must_use]
pub fn as_asked(config: RedisConfig) -> RedisConfig {
    if is_plain_run() {
        config.calls_at_once(usize::MAX)
    } else {
        config
    }
}

/// A store that has its connection.
///
/// # Panics
///
/// When Redis does not answer.
pub async fn connected(config: RedisConfig) -> RedisStore {
    let store = RedisStore::new(config);
    assert!(store.connected(PATIENCE).await, "Redis does not answer");
    store
}

fn unique_prefix() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("test-{}-{count}", std::process::id())
}

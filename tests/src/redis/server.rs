//! The Redis that a test uses, wherever it comes from.

use std::{
    collections::HashMap,
    env,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use ratelimit_core::{Clock, RedisConfig, RedisStore};

use super::{acl::Deployment, process::RedisProcess};
use crate::chaos::TestCluster;

/// Longer than any pause of a busy machine: what is tested here is answers and not their speed.
const PATIENCE: Duration = Duration::from_secs(20);

/// A Redis to test with; it ends with this value, unless it was given from outside.
#[derive(Debug)]
pub struct TestRedis {
    /// What stores connect to.
    url: String,
    /// What tests connect to, to look at what stores wrote: every server that holds keys.
    servers: Vec<String>,
    _running: Running,
}

#[derive(Debug)]
#[expect(dead_code, reason = "held until the test ends")]
enum Running {
    Given,
    Processes(Vec<RedisProcess>),
    Cluster(TestCluster),
}

impl TestRedis {
    /// Finds or starts a Redis.
    ///
    /// # Panics
    ///
    /// When there is none, and none can be started: a test that needs Redis never skips.
    #[expect(clippy::unused_async, reason = "133 tests await it")]
    pub async fn start() -> TestRedis {
        if let Ok(url) = env::var("RATELIMIT_TEST_REDIS_URL") {
            return TestRedis::at(url, Running::Given);
        }
        let process = RedisProcess::start(&[]);
        TestRedis::at(process.url(), Running::Processes(vec![process]))
    }

    fn at(url: String, running: Running) -> TestRedis {
        TestRedis {
            servers: vec![url.clone()],
            url,
            _running: running,
        }
    }

    /// Starts servers that stores use as the user of the documented ACL line, and as nobody else.
    ///
    /// # Panics
    ///
    /// When they do not start, or refuse the line.
    pub async fn deployed(deployment: Deployment) -> TestRedis {
        let user = deployment.user();
        if deployment == Deployment::Cluster {
            let cluster = TestCluster::start_masters().await;
            for node in &cluster.nodes {
                deployment.add_user_to(node);
            }
            return TestRedis {
                url: cluster.url().replacen("://", &format!("://{user}"), 1),
                servers: cluster.nodes.iter().map(RedisProcess::url).collect(),
                _running: Running::Cluster(cluster),
            };
        }
        let master = RedisProcess::start(&[]);
        deployment.add_user_to(&master);
        let servers = vec![master.url()];
        if deployment == Deployment::Single {
            return TestRedis {
                url: format!("redis://{user}127.0.0.1:{}", master.port()),
                servers,
                _running: Running::Processes(vec![master]),
            };
        }
        let sentinel = RedisProcess::sentinel(master.port(), 1);
        TestRedis {
            url: format!(
                "redis+sentinel://{user}127.0.0.1:{}/mymaster",
                sentinel.port()
            ),
            servers,
            _running: Running::Processes(vec![master, sentinel]),
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
        as_asked(config).timeout(PATIENCE).connect_timeout(PATIENCE)
    }

    /// A connected store on `clock`, with a prefix that no other test has.
    ///
    /// # Panics
    ///
    /// When Redis does not answer.
    pub async fn store(&self, clock: Clock) -> RedisStore {
        connected(self.config().clock(clock)).await
    }

    /// A plain connection to the first server, to look at what stores wrote.
    ///
    /// # Panics
    ///
    /// When Redis does not answer.
    pub fn connection(&self) -> redis::Connection {
        connection(&self.servers[0])
    }

    /// The names of all keys, on all servers.
    ///
    /// # Panics
    ///
    /// When a server does not answer.
    pub fn keys(&self) -> Vec<String> {
        let keys_of = |server: &String| -> Vec<String> {
            let keys = redis::cmd("KEYS").arg("*").query(&mut connection(server));
            keys.expect("the names of all keys")
        };
        self.servers.iter().flat_map(keys_of).collect()
    }

    /// Runs a command about one key, on the server that holds the key.
    ///
    /// # Panics
    ///
    /// When no server answers it.
    pub fn query<T: redis::FromRedisValue>(&self, command: &str, key: &str) -> T {
        let mut answers = self.servers.iter().map(|server| {
            let mut command = redis::cmd(command);
            command.arg(key).query(&mut connection(server))
        });
        // The other nodes of a cluster answer with a redirection.
        let answer = answers.find_map(redis::RedisResult::ok);
        answer.unwrap_or_else(|| panic!("no server answers {command} {key}"))
    }

    /// The commands that were denied to somebody so far, on all servers.
    ///
    /// # Panics
    ///
    /// When a server does not answer.
    pub fn denied_commands(&self) -> Vec<String> {
        let denied_by = |server: &String| -> Vec<String> {
            let log: Vec<HashMap<String, redis::Value>> = redis::cmd("ACL")
                .arg("LOG")
                .query(&mut connection(server))
                .expect("the log of denied commands");
            let command = |mut entry: HashMap<String, redis::Value>| {
                let object = entry.remove("object")?;
                redis::from_redis_value(object).ok()
            };
            log.into_iter().filter_map(command).collect()
        };
        self.servers.iter().flat_map(denied_by).collect()
    }

    /// Asserts that every key there is has a time to live.
    ///
    /// # Panics
    ///
    /// When one has none.
    pub fn assert_every_key_expires(&self) {
        for server in &self.servers {
            let mut connection = connection(server);
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
}

fn connection(url: &str) -> redis::Connection {
    redis::Client::open(url)
        .and_then(|client| client.get_connection())
        .expect("a connection to Redis")
}

/// Whether this run is without what makes Redis fast: `RATELIMIT_TEST_PLAIN=1`.
pub fn is_plain_run() -> bool {
    env::var("RATELIMIT_TEST_PLAIN").is_ok_and(|plain| plain == "1")
}

/// The configuration, with each hit in a call of its own in a plain run.
#[must_use]
pub fn as_asked(config: RedisConfig) -> RedisConfig {
    if is_plain_run() {
        config.unbatched_calls(usize::MAX)
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
    assert!(
        store.wait_connected(PATIENCE).await,
        "Redis does not answer"
    );
    store
}

fn unique_prefix() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // The documented users may use no other keys.
    format!("rate_limiter:test-{}-{count}", std::process::id())
}

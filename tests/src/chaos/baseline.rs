//! Layers as most services have them: a counter in a script, over what the redis crates offer.

use std::fmt;

use bb8_redis::{RedisConnectionManager, bb8::Pool};
use ratelimit_core::Policy;
use redis::{
    RedisError, Script,
    aio::{ConnectionManager, MultiplexedConnection},
};

use super::layer::{Audit, CallOutcome, Later, Layer};

/// Reads a counter, and adds to it while it is below the limit.
const COUNTER: &str = "
local spent = tonumber(redis.call('GET', KEYS[1]) or '0')
if spent >= tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], spent + 1, 'PX', 3600000)
return 1";

/// One multiplexed connection that connects again by itself.
pub(super) struct Manager {
    connection: ConnectionManager,
    script: Script,
}

impl Manager {
    pub(super) async fn connect(url: &str) -> Manager {
        let client = redis::Client::open(url).expect("an address");
        Manager {
            connection: client.get_connection_manager().await.expect("a server"),
            script: Script::new(COUNTER),
        }
    }

    async fn ask(&self, policy: &Policy, key: &str) -> Result<bool, RedisError> {
        let mut connection = self.connection.clone();
        let mut call = self.script.key(key);
        call.arg(limit_of(policy))
            .invoke_async(&mut connection)
            .await
    }
}

impl Layer for Manager {
    fn hit<'a>(&'a self, policy: &'a Policy, key: &'a str) -> Later<'a, CallOutcome> {
        Box::pin(async move { told(&self.ask(policy, key).await) })
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionManager")
    }
}

/// A pool of connections with the settings it comes with.
#[derive(Debug)]
pub(super) struct Pooled {
    pool: Pool<RedisConnectionManager>,
    script: Script,
}

impl Pooled {
    pub(super) async fn connect(url: &str) -> Pooled {
        let manager = RedisConnectionManager::new(url).expect("an address");
        Pooled {
            pool: Pool::builder().build(manager).await.expect("a server"),
            script: Script::new(COUNTER),
        }
    }
}

impl Layer for Pooled {
    fn hit<'a>(&'a self, policy: &'a Policy, key: &'a str) -> Later<'a, CallOutcome> {
        Box::pin(async move {
            let Ok(mut connection) = self.pool.get().await else {
                return CallOutcome::Unchecked { allowed: true };
            };
            let mut call = self.script.key(key);
            let call = call.arg(limit_of(policy));
            told(&call.invoke_async(&mut *connection).await)
        })
    }
}

/// Reads the counters of plain layers.
pub(super) struct Counters {
    connection: MultiplexedConnection,
}

impl Counters {
    pub(super) async fn connect(url: &str) -> Counters {
        let client = redis::Client::open(url).expect("an address");
        let connection = client.get_multiplexed_async_connection().await;
        Counters {
            connection: connection.expect("a server"),
        }
    }
}

impl Audit for Counters {
    fn counted<'a>(&'a self, _: &'a Policy, key: &'a str) -> Later<'a, u64> {
        Box::pin(async move {
            let mut connection = self.connection.clone();
            let counted = redis::cmd("GET")
                .arg(key)
                .query_async(&mut connection)
                .await;
            let counted: Option<u64> = counted.expect("a counter");
            counted.unwrap_or(0)
        })
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counters")
    }
}

fn limit_of(policy: &Policy) -> u64 {
    policy.limits()[0].capacity()
}

/// Plain layers let everything through when they fail.
fn told(answer: &Result<bool, RedisError>) -> CallOutcome {
    match *answer {
        Ok(allowed) => CallOutcome::Checked { allowed },
        Err(_) => CallOutcome::Unchecked { allowed: true },
    }
}

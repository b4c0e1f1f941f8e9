//! A token bucket in Redis as tutorials have it: a hash, read and written field by field.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bb8_redis::{RedisConnectionManager, bb8::Pool};
use redis::{Script, aio::ConnectionLike};

/// Reads two fields, computes in floats on the caller's clock, writes both and their expiry whether
/// the hit passed or not, and answers a table.
const SCRIPT: &str = r"
local capacity = tonumber(ARGV[1])
local rate = tonumber(ARGV[2])
local now = tonumber(ARGV[3])
local requested = tonumber(ARGV[4])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'last_refill')
local tokens = tonumber(bucket[1]) or capacity
local last_refill = tonumber(bucket[2]) or now
local elapsed = math.max(0, now - last_refill)
tokens = math.min(capacity, tokens + elapsed * rate)
local allowed = 0
if tokens >= requested then
  tokens = tokens - requested
  allowed = 1
end
redis.call('HMSET', KEYS[1], 'tokens', tokens, 'last_refill', now)
redis.call('EXPIRE', KEYS[1], math.ceil(capacity / rate) * 2)
return {allowed, math.floor(tokens)}
";

/// The script, loaded once.
#[derive(Debug)]
pub struct Naive(Script);

impl Naive {
    /// The script.
    pub fn new() -> Naive {
        Naive(Script::new(SCRIPT))
    }

    /// Asks for one unit of a bucket that is large enough for any run.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    pub async fn ask(&self, connection: &mut impl ConnectionLike, key: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs_f64();
        let answer: redis::RedisResult<(i64, i64)> = self
            .0
            .key(key)
            .arg(100_000_000)
            .arg(1_000_000)
            .arg(now)
            .arg(1)
            .invoke_async(connection)
            .await;
        answer.expect("the server decides");
    }
}

impl Default for Naive {
    fn default() -> Naive {
        Naive::new()
    }
}

/// A pool with the settings that it comes with, and patience.
///
/// # Panics
///
/// When the server does not answer.
pub async fn pool(url: &str) -> Pool<RedisConnectionManager> {
    let manager = RedisConnectionManager::new(url).expect("an address of Redis");
    let patient = Pool::builder().connection_timeout(Duration::from_secs(60));
    patient.build(manager).await.expect("a server that answers")
}

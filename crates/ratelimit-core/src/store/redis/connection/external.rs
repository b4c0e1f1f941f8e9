//! Connections of the application: multiplexed, cluster, and pool.
//!
//! The store sends over them and leaves the rest to their owner:
//!
//! - No reconnects, no circuit breaker, no heartbeat, and no `rate_limiter_store_up` gauge.
//! - Hits are not batched.
//! - Every call has the deadline of its hit. A future that is dropped at the deadline may have sent
//!   its command.

use std::{fmt, future::Future, pin::Pin};

use redis::{Cmd, RedisResult, Value, aio::MultiplexedConnection};

/// A command in flight, boxed because the senders have different futures. It borrows nothing.
pub(in crate::store::redis) type SendFuture =
    Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// Sends a command over a connection of the application.
pub(in crate::store::redis) trait ExternalSender:
    fmt::Debug + Send + Sync + 'static
{
    /// Sends a command and returns the reply.
    ///
    /// # Errors
    ///
    /// The error of the redis crate. An error reply may be an `Err` or a [`Value::ServerError`];
    /// the caller extracts the latter.
    fn send(&self, cmd: Cmd) -> SendFuture;

    /// Whether keys are spread over several nodes. A hit on keys of several hash slots then takes a
    /// call for each.
    fn is_cluster(&self) -> bool {
        false
    }
}

/// A multiplexed connection. Clones share one socket.
///
/// Its driver lives on the runtime that opened it. When that ends, every call fails with a broken
/// connection.
pub(in crate::store::redis) struct ExternalMultiplexed(
    pub(in crate::store::redis) MultiplexedConnection,
);

impl ExternalSender for ExternalMultiplexed {
    fn send(&self, cmd: Cmd) -> SendFuture {
        let mut connection = self.0.clone();
        Box::pin(async move { cmd.query_async(&mut connection).await })
    }
}

/// Writes the name of the type only.
impl fmt::Debug for ExternalMultiplexed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MultiplexedConnection")
    }
}

/// A cluster connection, which routes and follows redirections itself.
///
/// It sends a command again when its reply is lost, so a hit can be charged twice. The `retries` of
/// its builder bound that.
#[cfg(feature = "redis-cluster")]
pub(in crate::store::redis) struct ExternalCluster(
    pub(in crate::store::redis) redis::cluster_async::ClusterConnection,
);

#[cfg(feature = "redis-cluster")]
impl ExternalSender for ExternalCluster {
    fn send(&self, cmd: Cmd) -> SendFuture {
        let mut connection = self.0.clone();
        Box::pin(async move { cmd.query_async(&mut connection).await })
    }

    fn is_cluster(&self) -> bool {
        true
    }
}

/// Writes the name of the type only.
#[cfg(feature = "redis-cluster")]
impl fmt::Debug for ExternalCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterConnection")
    }
}

/// A pool of connections. A call waits for a free one, at most until its own deadline.
#[cfg(feature = "bb8")]
#[derive(Debug)]
pub(in crate::store::redis) struct ExternalPool(
    pub(in crate::store::redis) bb8::Pool<bb8_redis::RedisConnectionManager>,
);

#[cfg(feature = "bb8")]
impl ExternalSender for ExternalPool {
    fn send(&self, cmd: Cmd) -> SendFuture {
        let pool = self.0.clone();
        Box::pin(async move {
            // A pool that tests connections on check-out costs a round trip here.
            let checked_out = pool.get().await;
            let mut connection = checked_out.map_err(|error| match error {
                bb8::RunError::User(error) => error,
                // The pool's own timeout, 30 s by default, is far above that of a hit and is hardly
                // ever reached.
                bb8::RunError::TimedOut => {
                    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
                }
            })?;
            cmd.query_async(&mut *connection).await
        })
    }
}

//! Connections of the application: multiplexed, cluster, and pool.

use std::{fmt, future::Future, pin::Pin};

use redis::{Cmd, RedisResult, Value, aio::MultiplexedConnection};

pub(in crate::store::redis) type SendFuture =
    Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// Sends a command over a connection of the application.
pub(in crate::store::redis) trait ExternalSender:
    fmt::Debug + Send + Sync + 'static
{
    /// Sends a command and returns the reply.
    fn send(&self, cmd: Cmd) -> SendFuture;

    /// Whether keys are spread over several nodes.
    fn is_cluster(&self) -> bool {
        false
    }
}

/// A multiplexed connection. Clones share one socket.
pub(in crate::store::redis) struct ExternalMultiplexed(
    pub(in crate::store::redis) MultiplexedConnection,
);

impl ExternalSender for ExternalMultiplexed {
    fn send(&self, cmd: Cmd) -> SendFuture {
        let mut connection = self.0.clone();
        Box::pin(async move { cmd.query_async(&mut connection).await })
    }
}

impl fmt::Debug for ExternalMultiplexed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MultiplexedConnection")
    }
}

/// A cluster connection, which routes and follows redirections itself.
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

#[cfg(feature = "redis-cluster")]
impl fmt::Debug for ExternalCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterConnection")
    }
}

/// A pool of connections. A call waits for a free one.
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
            let checked_out = pool.get().await;
            let mut connection = checked_out.map_err(|error| match error {
                bb8::RunError::User(error) => error,
                bb8::RunError::TimedOut => {
                    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
                }
            })?;
            cmd.query_async(&mut *connection).await
        })
    }
}

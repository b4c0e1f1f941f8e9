//! Connections that the application already has.

use std::{fmt, future::Future, pin::Pin};

use redis::{Cmd, RedisResult, Value, aio::MultiplexedConnection};

pub(super) type Calling = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// Something that sends a command and gives the answer.
pub(super) trait Existing: fmt::Debug + Send + Sync + 'static {
    fn call(&self, cmd: Cmd) -> Calling;

    /// Whether keys are spread over several nodes.
    fn is_cluster(&self) -> bool {
        false
    }
}

/// A multiplexed connection, as it is.
pub(super) struct Multiplexed(pub(super) MultiplexedConnection);

impl Existing for Multiplexed {
    fn call(&self, cmd: Cmd) -> Calling {
        let mut connection = self.0.clone();
        Box::pin(async move { cmd.query_async(&mut connection).await })
    }
}

impl fmt::Debug for Multiplexed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MultiplexedConnection")
    }
}

/// A cluster connection, as it is.
#[cfg(feature = "redis-cluster")]
pub(super) struct Cluster(pub(super) redis::cluster_async::ClusterConnection);

#[cfg(feature = "redis-cluster")]
impl Existing for Cluster {
    fn call(&self, cmd: Cmd) -> Calling {
        let mut connection = self.0.clone();
        Box::pin(async move { cmd.query_async(&mut connection).await })
    }

    fn is_cluster(&self) -> bool {
        true
    }
}

#[cfg(feature = "redis-cluster")]
impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterConnection")
    }
}

/// A pool of connections, as it is.
#[cfg(feature = "bb8")]
#[derive(Debug)]
pub(super) struct Pool(pub(super) bb8::Pool<bb8_redis::RedisConnectionManager>);

#[cfg(feature = "bb8")]
impl Existing for Pool {
    fn call(&self, cmd: Cmd) -> Calling {
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

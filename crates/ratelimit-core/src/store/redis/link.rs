//! The connection to Redis: there or not there, and one task that sees to it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::{RedisResult, aio::MultiplexedConnection};
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    task::JoinHandle,
};

use super::config::RedisConfig;

const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A connection that is there or not there; nobody waits for it.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    config: RedisConfig,
    slot: watch::Sender<Option<Connected>>,
    broken: Notify,
}

/// A connection, and which of all that there were it is.
#[derive(Clone, Debug)]
pub(super) struct Connected {
    pub(super) connection: MultiplexedConnection,
    generation: u64,
}

impl Link {
    pub(super) fn new(config: RedisConfig) -> Link {
        let shared = Shared {
            config,
            slot: watch::Sender::new(None),
            broken: Notify::new(),
        };
        Link {
            shared: Arc::new(shared),
            task: Mutex::new(None),
        }
    }

    /// The connection, if there is one now.
    pub(super) fn current(&self) -> Option<Connected> {
        self.see_to_it();
        self.shared.slot.borrow().clone()
    }

    /// Waits until there is a connection.
    pub(super) async fn connected(&self) {
        self.see_to_it();
        let mut slot = self.shared.slot.subscribe();
        // The sender lives in `self`, so the wait ends only with a connection.
        let _ = slot.wait_for(Option::is_some).await;
    }

    /// Takes a broken connection out of the slot, unless another has replaced it already.
    pub(super) fn report_broken(&self, connected: &Connected) {
        self.shared.drop_connection(connected.generation);
    }

    /// Starts the task that connects, on the caller's runtime, unless it runs already.
    ///
    /// A connection dies with the runtime that made it, and so does the task.
    fn see_to_it(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        self.shared.slot.send_replace(None);
        *task = Some(runtime.spawn(Arc::clone(&self.shared).run()));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task {
            task.abort();
        }
    }
}

impl Shared {
    async fn run(self: Arc<Shared>) {
        let mut pause = SHORTEST_PAUSE;
        let mut generation = 0;
        loop {
            match self.connect().await {
                Ok(connection) => {
                    generation += 1;
                    pause = SHORTEST_PAUSE;
                    self.slot.send_replace(Some(Connected {
                        connection,
                        generation,
                    }));
                    self.broken.notified().await;
                }
                Err(error) => tracing::warn!(%error, "cannot connect to Redis"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let config = &self.config;
        config
            .client
            .get_multiplexed_async_connection_with_config(&config.connection())
            .await
    }

    fn drop_connection(&self, generation: u64) {
        let taken = self.slot.send_if_modified(|slot| {
            let same = slot.as_ref().is_some_and(|c| c.generation == generation);
            if same {
                *slot = None;
            }
            same
        });
        if taken {
            self.broken.notify_one();
        }
    }
}

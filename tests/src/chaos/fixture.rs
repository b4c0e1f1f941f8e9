//! A server, a proxy in front of it, and a layer that talks through the proxy.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use ratelimit_core::{FailureMode, RedisConfig};
use tokio::task::block_in_place;

use super::{
    baseline::{Counters, Manager, Pooled},
    layer::{Audit, Layer, Ours},
    observed::Observations,
    proxy::Proxy,
    serial::{SerialGuard, serial},
};
use crate::redis::{RedisProcess, as_asked};

/// Longer than any pause of a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The time-out of a decision in this suite. The default is longer, for busy machines
/// (`docs/decisions/0015-time-out.md`).
pub const TIME_OUT: Duration = Duration::from_millis(25);

/// Which layer is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// This project's.
    Ours,
    /// The redis crate's `ConnectionManager` with a plain script.
    Manager,
    /// A bb8-redis pool with a plain script.
    Pool,
}

impl Kind {
    /// All there are.
    pub const ALL: [Kind; 3] = [Kind::Ours, Kind::Manager, Kind::Pool];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Ours => "ratelimit-core",
            Kind::Manager => "ConnectionManager",
            Kind::Pool => "bb8-redis",
        })
    }
}

/// A server with a proxy in front.
#[derive(Debug)]
pub struct Fixture {
    /// The server.
    pub server: RedisProcess,
    /// The proxy in front of it.
    pub proxy: Proxy,
    prefix: String,
    _serial: SerialGuard,
}

impl Fixture {
    /// Starts both, the server with further arguments.
    pub async fn start(extra: &[&str]) -> Fixture {
        let serial = serial().await;
        Observations::listen();
        let server = block_in_place(|| RedisProcess::start(extra));
        let proxy = Proxy::start(server.port()).await;
        Fixture {
            server,
            proxy,
            prefix: unique_prefix(),
            _serial: serial,
        }
    }

    /// The prefix of the fixture's keys.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A configuration that leads through the proxy.
    ///
    /// # Panics
    ///
    /// Never: the address is valid.
    pub fn config(&self) -> RedisConfig {
        self.config_at(&self.proxy.url())
    }

    /// A configuration for any address, with the fixture's prefix and [`TIME_OUT`].
    ///
    /// # Panics
    ///
    /// When `url` is no address.
    pub fn config_at(&self, url: &str) -> RedisConfig {
        let config = RedisConfig::new(url).and_then(|config| config.prefix(&self.prefix));
        as_asked(config.expect("a valid address").timeout(TIME_OUT))
    }

    /// A connected layer that asks through the proxy.
    ///
    /// # Panics
    ///
    /// When it does not connect.
    pub async fn layer(&self, kind: Kind) -> Arc<dyn Layer> {
        self.layer_as(kind, "").await
    }

    /// The same for a user, as in `name:password@`.
    ///
    /// # Panics
    ///
    /// When it does not connect.
    pub async fn layer_as(&self, kind: Kind, user: &str) -> Arc<dyn Layer> {
        let url = format!("redis://{user}127.0.0.1:{}", self.proxy.port());
        match kind {
            Kind::Ours => Arc::new(ours(self.config_at(&url), FailureMode::Local).await),
            Kind::Manager => Arc::new(Manager::connect(&url).await),
            Kind::Pool => Arc::new(Pooled::connect(&url).await),
        }
    }

    /// Reads what the server counted, past the proxy.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    pub async fn audit(&self, kind: Kind) -> Box<dyn Audit> {
        let url = self.server.url();
        if kind == Kind::Ours {
            let config = self.config_at(&url).timeout(PATIENCE);
            let config = config.connect_timeout(PATIENCE);
            return Box::new(ours(config, FailureMode::Closed).await);
        }
        Box::new(Counters::connect(&url).await)
    }

    /// Runs one command on the server.
    ///
    /// # Panics
    ///
    /// When the server refuses it.
    pub fn command(&self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let done: redis::RedisResult<redis::Value> = block_in_place(|| self.server.command(&words));
        done.unwrap_or_else(|error| panic!("{line}: {error}"));
    }

    /// A number from the server's `INFO`.
    ///
    /// # Panics
    ///
    /// When there is no such number.
    pub fn info(&self, name: &str) -> u64 {
        let text: String = block_in_place(|| self.server.command(&["INFO", "everything"]))
            .expect("the server answers");
        let mut values = text.lines().filter_map(|line| line.strip_prefix(name));
        let value = values.next().expect("a known name");
        value
            .trim_start_matches(':')
            .trim()
            .parse()
            .expect("a number")
    }
}

/// A limiter of ours that is connected.
///
/// # Panics
///
/// When it does not connect.
pub async fn ours(config: RedisConfig, mode: FailureMode) -> Ours {
    let ours = Ours::new(config, mode);
    assert!(ours.store.wait_connected(PATIENCE).await, "not connected");
    ours
}

/// Waits until something is true, and tells how long that took.
///
/// # Panics
///
/// When it takes longer than [`PATIENCE`].
pub async fn eventually<F: Future<Output = bool>>(
    what: &str,
    mut is_true: impl FnMut() -> F,
) -> Duration {
    let asked = Instant::now();
    while !is_true().await {
        assert!(asked.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    asked.elapsed()
}

fn unique_prefix() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("chaos-{}-{count}", std::process::id())
}

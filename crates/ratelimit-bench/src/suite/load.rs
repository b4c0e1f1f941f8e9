//! Load: many concurrent tasks that check keys.

use std::{
    future::Future,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use ratelimit_core::{Key, Limiter, Policy, RedisConfig, RedisStore, Verdict};
use redis::{IntoConnectionInfo as _, io::tcp::TcpSettings};
use tokio::runtime::{Builder, Runtime};

use super::duration::exact;

/// Number of keys that the tasks check in turn.
pub(super) const KEYS: usize = 10_000;

/// Longer than any decision takes on a busy machine: what is measured is the store, not the failure
/// mode.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// The result of one turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadResult {
    pub(super) per_second: f64,
    /// Milliseconds that half, 99 and 99.9 of a hundred stay below.
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) decisions: usize,
}

/// As many threads as leave one processor to the server.
pub(super) fn runtime() -> Runtime {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    Builder::new_multi_thread()
        .worker_threads(cores.saturating_sub(1).max(1))
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Runs `tasks` tasks for a duration; each checks one key after another.
pub(super) async fn run_load<A, F>(tasks: usize, lasting: Duration, ask: A) -> LoadResult
where
    A: Fn(usize) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let started = Instant::now();
    let asking = (0..tasks).map(|task| {
        let ask = ask.clone();
        tokio::spawn(async move {
            let mut waits = Vec::new();
            let mut key = task * KEYS / tasks;
            while started.elapsed() < lasting {
                let started_at = Instant::now();
                ask(key).await;
                waits.push(started_at.elapsed());
                key = (key + 1) % KEYS;
            }
            waits
        })
    });
    let asking: Vec<_> = asking.collect();
    let mut waits = Vec::new();
    for task in asking {
        waits.extend(task.await.expect("no task panics"));
    }
    LoadResult::of(waits, started.elapsed())
}

/// Runs `tasks` tasks for a duration; each makes a hit in every `gap`, and makes up for those that are late.
pub(super) async fn run_paced_load<A, F>(
    tasks: u32,
    gap: Duration,
    lasting: Duration,
    hit: A,
) -> LoadResult
where
    A: Fn() -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let started = Instant::now();
    let hitting = (0..tasks).map(|task| {
        let hit = hit.clone();
        tokio::spawn(async move {
            let mut waits = Vec::new();
            let mut due = gap * task / tasks;
            while due < lasting {
                tokio::time::sleep_until((started + due).into()).await;
                let started_at = Instant::now();
                hit().await;
                waits.push(started_at.elapsed());
                due += gap;
            }
            waits
        })
    });
    let hitting: Vec<_> = hitting.collect();
    let mut waits = Vec::new();
    for task in hitting {
        waits.extend(task.await.expect("no task panics"));
    }
    LoadResult::of(waits, started.elapsed())
}

impl LoadResult {
    fn of(mut waits: Vec<Duration>, within: Duration) -> LoadResult {
        waits.sort_unstable();
        let decisions = waits.len();
        let millis = |thousandth: usize| {
            let place = decisions * thousandth / 1_000;
            let wait = waits.get(place.min(decisions.saturating_sub(1)));
            wait.map_or(0.0, |wait| wait.as_secs_f64() * 1e3)
        };
        LoadResult {
            per_second: exact(decisions) / within.as_secs_f64(),
            p50: millis(500),
            p99: millis(990),
            p999: millis(999),
            decisions,
        }
    }
}

/// A connected limiter, and the keys that it checks.
#[derive(Clone, Debug)]
pub(super) struct LoadClient {
    limiter: Limiter,
    policy: Policy,
    keys: Arc<[Key]>,
}

impl LoadClient {
    /// Over a store of ours with the settings that it comes with, and patience.
    pub(super) async fn connected(url: &str) -> LoadClient {
        let store = RedisStore::new(config(url));
        assert!(store.wait_connected(TIMEOUT).await, "Redis does not answer");
        LoadClient::over(Limiter::new(store))
    }

    /// Over a plain multiplexed connection, with the same script and the same arguments.
    pub(super) async fn plain(url: &str, settings: TcpSettings) -> LoadClient {
        let info = url.into_connection_info().expect("an address of Redis");
        let client = redis::Client::open(info.set_tcp_settings(settings));
        let client = client.expect("an address of Redis");
        let connection = client.get_multiplexed_async_connection().await;
        let connection = connection.expect("a server that answers");
        LoadClient::over(Limiter::new(RedisStore::from_multiplexed(
            connection,
            config(url),
        )))
    }

    fn over(limiter: Limiter) -> LoadClient {
        let limits = "token_bucket 1000000/s burst 100000000";
        let keys = (0..KEYS).map(|number| {
            let key = Key::new(format!("user:{number:08}"));
            key.expect("a key that is not empty")
        });
        LoadClient {
            limiter,
            policy: Policy::parse("bench", limits).expect("limits that are well formed"),
            keys: keys.collect(),
        }
    }

    /// Asks for one unit, and insists that the store decides.
    pub(super) async fn ask(self, key: usize) {
        let verdict = self.limiter.check(&self.policy, &self.keys[key]).await;
        assert!(matches!(verdict, Verdict::Checked(_)), "{verdict:?}");
    }
}

pub(super) fn config(url: &str) -> RedisConfig {
    let config = RedisConfig::new(url).expect("an address of Redis");
    config.timeout(TIMEOUT).connect_timeout(TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_taken_from_all_waits() {
        let waits = (1..=1_000).rev().map(Duration::from_millis).collect();

        let result = LoadResult::of(waits, Duration::from_secs(2));

        let percentiles = [result.p50, result.p99, result.p999];
        assert_eq!(
            percentiles.map(|wait| wait.round().to_string()),
            ["501", "991", "1000"]
        );
        assert_eq!(
            (result.per_second.to_string(), result.decisions),
            ("500".to_owned(), 1_000)
        );
    }
}

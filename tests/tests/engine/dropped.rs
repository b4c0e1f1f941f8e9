//! Futures that are dropped at each of their polls: a call is charged as a whole or not at all, on all
//! its keys alike, and a slot that nobody holds is free.

#![allow(
    clippy::async_yields_async,
    reason = "what is prepared is a future that the test polls by hand"
)]

use std::{
    future::poll_fn,
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http::{HeaderName, Request, Response, request::Parts};
use ratelimit_core::{
    FailureMode, Key, KeySet, Limiter, MemoryStore, Policy, RedisConfig, Verdict, store::Hit,
};
use ratelimit_tests::{
    chaos::TestCluster,
    redis::{TestRedis, connected},
};
use ratelimit_tower::{KeyError, RateLimitLayer};
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::stores::{key, policy};

/// Longer than any pause of a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long what was given up may take to be given back; leases are ten minutes.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(3);
/// A future that is still pending after so many polls waits for something else than the store.
const MOST_POLLS: usize = 24;
/// How many calls are made at once, so that some of them share calls to Redis.
const AT_ONCE: usize = 8;

const LIMIT: u64 = 5;
const SLOTS: u64 = 3;
const RATES: &str = "fixed_window 5/366d; fixed_window 5/366d by ip";
const SLOTS_AND_RATES: &str =
    "concurrency 3 lease 10min; fixed_window 5/366d; fixed_window 5/366d by ip";

/// When a future is dropped that is pending after its last poll.
#[derive(Clone, Copy, Debug)]
enum Drops {
    /// At once: what it waits for is under way.
    AtOnce,
    /// When it is woken: what it waits for is there, and not looked at.
    WhenWoken,
}

/// Polls `future` at most `polls` times, and drops it; tells its output if it ended before.
async fn dropped_after<F: Future>(future: F, polls: usize, drops: Drops) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polled = 0;
    let polling = poll_fn(|cx| {
        if polled == polls {
            return Poll::Ready(None);
        }
        polled += 1;
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        match drops {
            Drops::AtOnce if polled == polls => Poll::Ready(None),
            _ => Poll::Pending,
        }
    });
    let ended = tokio::time::timeout(Duration::from_millis(200), polling).await;
    ended.unwrap_or(None)
}

/// What a call was made with, and whether it ended.
struct Called {
    keys: KeySet,
    polls: usize,
    has_ended: bool,
}

/// A store to make calls on, and keys for them.
struct Place {
    name: &'static str,
    limiter: Limiter,
    redis: Option<TestRedis>,
    cluster: Option<TestCluster>,
}

impl Place {
    async fn all() -> Vec<Place> {
        let limiter = |limiter: Limiter| {
            let closed = limiter.failure_mode(FailureMode::Closed);
            closed.without_deny_cache()
        };
        let redis = TestRedis::start().await;
        let one = connected(redis.config().timeout(PATIENCE)).await;
        let cluster = TestCluster::start_masters().await;
        let config = RedisConfig::new(&cluster.url()).expect("an address");
        let several = connected(config.timeout(PATIENCE)).await;
        vec![
            Place {
                name: "memory",
                limiter: limiter(Limiter::new(MemoryStore::new())),
                redis: None,
                cluster: None,
            },
            Place {
                name: "redis",
                limiter: limiter(Limiter::new(one)),
                redis: Some(redis),
                cluster: None,
            },
            Place {
                name: "cluster",
                limiter: limiter(Limiter::new(several)),
                redis: None,
                cluster: Some(cluster),
            },
        ]
    }

    /// Fresh keys, on different nodes where there are several.
    fn keys(&self, name: &str) -> KeySet {
        let own = format!("own-{name}");
        let mut others = (0..).map(|number| format!("ip-{name}-{number}"));
        let ip = others.find(|ip| {
            self.cluster.as_ref().is_none_or(|cluster| {
                let node = |name: &str| cluster.master_of(format!("{{key:{name}}}"));
                node(ip) != node(&own)
            })
        });
        KeySet::new(key(&own)).with("ip", key(&ip.expect("some key lives elsewhere")))
    }

    /// Drops the futures that `prepare` makes at each of their polls, until all of them end.
    async fn dropped_at_each_poll<F: Future>(
        &self,
        what: &str,
        prepare: impl AsyncFn(KeySet) -> F,
    ) -> Vec<Called> {
        let mut called = Vec::new();
        for drops in [Drops::AtOnce, Drops::WhenWoken] {
            for polls in 0..MOST_POLLS {
                let calls = FuturesUnordered::new();
                for number in 0..AT_ONCE {
                    let keys = self.keys(&format!("{what}-{drops:?}-{polls}-{number}"));
                    let call = dropped_after(prepare(keys.clone()).await, polls, drops);
                    calls.push(async move {
                        let has_ended = call.await.is_some();
                        Called {
                            keys,
                            polls,
                            has_ended,
                        }
                    });
                }
                let calls: Vec<Called> = calls.collect().await;
                let all_ended = calls.iter().all(|call| call.has_ended);
                called.extend(calls);
                if all_ended {
                    break;
                }
            }
        }
        let ended = called.iter().filter(|call| call.has_ended).count();
        let dropped = called.len() - ended;
        println!("{} {what}: {dropped} dropped, {ended} ended", self.name);
        assert!(ended > 0 && dropped > 0, "{} {what}", self.name);
        called
    }

    /// What remains of each limit.
    async fn left(&self, policy: &Policy, keys: &KeySet) -> Vec<u64> {
        match self
            .limiter
            .check_hit(Hit::for_keys(policy, keys).cost(0))
            .await
        {
            Verdict::Checked(look) => look.limits().map(|limit| limit.remaining).collect(),
            unchecked => panic!("{}: {unchecked:?}", self.name),
        }
    }

    /// Waits until each call is accounted for, and tells which are not.
    async fn mistakes(
        &self,
        what: &str,
        policy: &Policy,
        called: &[Called],
        is_right: impl Fn(&Called, &[u64]) -> bool,
    ) -> Vec<String> {
        let until = Instant::now() + GIVEN_BACK_WITHIN;
        let mut wrong = Vec::new();
        for call in called {
            loop {
                let left = self.left(policy, &call.keys).await;
                if is_right(call, &left) {
                    break;
                }
                if Instant::now() > until {
                    wrong.push(left);
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        if let Some(redis) = &self.redis {
            redis.assert_every_key_expires();
        }
        let (count, all) = (wrong.len(), called.len());
        wrong.sort_unstable();
        wrong.dedup();
        let told = |left| {
            format!(
                "{what} on {}: {count} of {all} wrong, as {left:?}",
                self.name
            )
        };
        wrong.into_iter().take(2).map(told).collect()
    }
}

/// Whether a cost was charged to both keys alike, once or not at all.
fn is_whole(rates: &[u64], cost: u64) -> bool {
    rates == [LIMIT; 2] || rates == [LIMIT - cost; 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_check_is_charged_on_all_its_keys_or_on_none() {
    let mut mistakes = Vec::new();
    for place in Place::all().await {
        let rates = policy("checked", RATES);
        let called = place
            .dropped_at_each_poll("check", async |keys| {
                let hit = Hit::for_keys(&rates, &keys).cost(2);
                place.limiter.check_hit(hit)
            })
            .await;

        let is_right = |call: &Called, left: &[u64]| {
            is_whole(left, 2) && (!call.has_ended || left == [LIMIT - 2; 2])
        };
        mistakes.extend(place.mistakes("check", &rates, &called, is_right).await);
    }
    assert!(mistakes.is_empty(), "{mistakes:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_charge_leaves_no_slot_behind() {
    let mut mistakes = Vec::new();
    for place in Place::all().await {
        let both = policy("reserved", SLOTS_AND_RATES);
        let called = place
            .dropped_at_each_poll("charge", async |keys| {
                place.limiter.reserve(Hit::for_keys(&both, &keys).cost(2))
            })
            .await;

        let is_right = |_: &Called, left: &[u64]| left[0] == SLOTS && is_whole(&left[1..], 2);
        mistakes.extend(place.mistakes("charge", &both, &called, is_right).await);
    }
    assert!(mistakes.is_empty(), "{mistakes:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_settlement_is_made_on_all_keys_or_on_none() {
    let mut mistakes = Vec::new();
    for place in Place::all().await {
        for (actual, name) in [(0, "refunded"), (1, "settled"), (5, "raised")] {
            let both = policy(name, SLOTS_AND_RATES);
            let called = place
                .dropped_at_each_poll(name, async |keys| {
                    let hit = Hit::for_keys(&both, &keys).cost(4);
                    let (_, charge) = place.limiter.reserve(hit).await;
                    charge.expect("there is room").settle(actual)
                })
                .await;

            let is_right = |call: &Called, left: &[u64]| {
                let (before, after) = ([LIMIT - 4; 2], [LIMIT - actual; 2]);
                let rates = &left[1..];
                let is_whole = rates == after || (!call.has_ended && rates == before);
                left[0] == SLOTS && is_whole
            };
            mistakes.extend(place.mistakes(name, &both, &called, is_right).await);
        }
    }
    assert!(mistakes.is_empty(), "{mistakes:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_settlement_by_receipt_is_made_as_a_whole_or_not_at_all() {
    let mut mistakes = Vec::new();
    for place in Place::all().await {
        for (actual, name) in [(0, "receipt-refunded"), (5, "receipt-raised")] {
            let both = policy(name, SLOTS_AND_RATES);
            let called = place
                .dropped_at_each_poll(name, async |keys| {
                    let hit = Hit::for_keys(&both, &keys).cost(4);
                    let (_, charge) = place.limiter.reserve(hit).await;
                    let receipt = charge.expect("there is room").into_receipt();
                    let limiter = place.limiter.clone();
                    async move { limiter.settle(&receipt, actual).await }
                })
                .await;

            // From its first poll on the receipt may be marked as settled.
            let is_right = |call: &Called, left: &[u64]| {
                let (slots, rates) = match call.polls {
                    0 => (SLOTS - 1, [LIMIT - 4; 2]),
                    _ => (SLOTS, [LIMIT - actual; 2]),
                };
                left[0] == slots && left[1..] == rates
            };
            mistakes.extend(place.mistakes(name, &both, &called, is_right).await);
        }
    }
    assert!(mistakes.is_empty(), "{mistakes:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_wait_for_a_turn_leaves_no_slot_behind() {
    let mut mistakes = Vec::new();
    for place in Place::all().await {
        let both = policy("acquired", "concurrency 3 lease 10min; fixed_window 5/366d");
        let called = place
            .dropped_at_each_poll("acquire", async |keys| {
                let (limiter, both) = (place.limiter.clone(), both.clone());
                async move { limiter.acquire(&both, keys.primary(), PATIENCE).await }
            })
            .await;

        let is_right = |call: &Called, left: &[u64]| {
            let held = u64::from(call.has_ended);
            let charged = LIMIT - left[1];
            // Whoever has acquired a slot without a charge holds it until its lease ends.
            left[0] == SLOTS - held && charged <= 1 && charged >= held
        };
        mistakes.extend(place.mistakes("acquire", &both, &called, is_right).await);
    }
    assert!(mistakes.is_empty(), "{mistakes:#?}");
}

fn key_in(name: &'static str) -> impl Fn(&Parts) -> Result<Key, KeyError> {
    move |request| {
        let value = request.headers.get(name).ok_or(KeyError::Missing)?;
        Ok(Key::new(value)?)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_request_leaves_no_slot_behind() {
    let mut mistakes = Vec::new();
    for place in Place::all().await {
        let both = policy("layered", SLOTS_AND_RATES);
        let layer = RateLimitLayer::new(place.limiter.clone(), both.clone())
            .key_by(key_in("x-user"))
            .named_key("ip", key_in("x-ip"));
        let service = layer.layer(service_fn(async |_: Request<()>| {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            Ok::<_, std::io::Error>(Response::new(String::new()))
        }));
        let called = place
            .dropped_at_each_poll("request", async |keys| {
                let value = |key: &Key| key.as_str().trim_start_matches("key:").to_owned();
                let request = Request::builder()
                    .header(HeaderName::from_static("x-user"), value(keys.primary()))
                    .header(HeaderName::from_static("x-ip"), value(keys.get("ip")))
                    .body(())
                    .expect("a request");
                service.clone().oneshot(request)
            })
            .await;

        let is_right = |_: &Called, left: &[u64]| left[0] == SLOTS && is_whole(&left[1..], 1);
        mistakes.extend(place.mistakes("request", &both, &called, is_right).await);
    }
    assert!(mistakes.is_empty(), "{mistakes:#?}");
}

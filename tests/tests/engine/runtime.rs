//! A connection dies with the runtime that made it; the store does not.

use ratelimit_core::{Clock, Limiter, RedisStore, Verdict};
use ratelimit_tests::redis::TestRedis;

use crate::subject::{key, policy};

#[test]
fn a_store_outlives_the_runtime_that_connected_it() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let first = runtime();
    let redis = first.block_on(TestRedis::start());
    let store: RedisStore = first.block_on(redis.store(Clock::system()));
    let limiter = Limiter::new(store.clone());
    let limit = policy("runtime", "5/h");
    let checked = |verdict: Verdict| match verdict {
        Verdict::Checked(decision) => decision.remaining,
        unchecked @ Verdict::Unchecked { .. } => panic!("{unchecked:?}"),
    };

    let before = checked(first.block_on(limiter.check(&limit, &key("a"))));
    drop(first);
    let second = runtime();
    assert!(second.block_on(store.connected(std::time::Duration::from_secs(20))));
    let after = checked(second.block_on(async { limiter.check(&limit, &key("a")).await }));

    assert_eq!((before, after), (4, 3));
}

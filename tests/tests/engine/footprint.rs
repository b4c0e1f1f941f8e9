//! How many bytes a key takes in Redis.

use ratelimit_tests::redis::TestRedis;

use crate::stores::{TestStore, key, policy};

fn usage(redis: &TestRedis) -> (usize, String) {
    let mut connection = redis.connection();
    let names: Vec<String> = redis::cmd("KEYS")
        .arg("*:p:*")
        .query(&mut connection)
        .unwrap();
    let [name] = <[String; 1]>::try_from(names).expect("one key of the policy");
    let bytes = redis::cmd("MEMORY")
        .arg("USAGE")
        .arg(&name)
        .query(&mut connection)
        .unwrap();
    (bytes, name)
}

#[tokio::test]
async fn a_key_is_small_in_redis() {
    for (text, cost, most) in [
        ("token_bucket 10/s burst 100", 1, 110),
        ("leaky_bucket 10/s queue 100", 1, 110),
        ("fixed_window 100/min", 1, 110),
        ("sliding_window_counter 100/min", 1, 150),
        ("sliding_window_log 1000/min", 1, 110),
        ("sliding_window_log 1000/min", 1_000, 8_500),
        ("10/s; 1000/h", 1, 150),
    ] {
        let redis = TestRedis::start().await;
        let subject = TestStore::redis(&redis).await;

        subject
            .hit(&policy("p", text), &key("a"), 1_700_000_000_000_000, cost)
            .await;

        let (bytes, name) = usage(&redis);
        let beside = bytes - name.len();
        println!("{text}, {cost} spent: {beside} bytes beside the key's name");
        assert!(beside <= most, "{text}: {beside} bytes");
    }
}

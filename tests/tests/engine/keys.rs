//! Different keys never share a budget, whatever bytes they contain (law 11).

use std::collections::HashMap;

use proptest::prelude::*;
use ratelimit_core::Key;
use ratelimit_tests::redis::TestRedis;

use crate::stores::{TestStore, policy};

/// Bytes that limiters trip over.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let tricky = prop::sample::select(b"ab/:%{}*?[]\\.~ \r\n\0\xff2FC0".to_vec());
    prop_oneof![
        prop::collection::vec(tricky, 1..6),
        prop::collection::vec(any::<u8>(), 1..300),
        prop::collection::vec(Just(b'x'), 190..300),
    ]
}

type Parts = Vec<(usize, Vec<u8>)>;

fn parts() -> impl Strategy<Value = Parts> {
    prop::collection::vec((0..3_usize, bytes()), 1..4)
}

fn key_of(parts: &Parts) -> Key {
    let tags = ["a", "b", "key"];
    let mut keys = parts
        .iter()
        .map(|(tag, value)| Key::tagged(tags[*tag], value).unwrap());
    let first = keys.next().unwrap();
    keys.fold(first, |key, part| key.join(&part))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn different_parts_make_different_keys(all in prop::collection::vec(parts(), 2..12)) {
        let mut seen: HashMap<Key, &Parts> = HashMap::new();
        for parts in &all {
            let key = key_of(parts);
            prop_assert!(key.as_str().len() <= 200);
            let unsafe_in_redis = key.as_str().contains(['{', '}', '*', '?', '[', ' ']);
            prop_assert!(!unsafe_in_redis);
            if let Some(other) = seen.insert(key, parts) {
                prop_assert_eq!(other, parts);
            }
        }
    }
}

#[test]
fn no_value_can_imitate_the_seam_of_two_parts() {
    let part = |tag, value: &str| Key::tagged(tag, value).unwrap();
    let pair = part("a", "x").join(&part("b", "y"));

    for seam in [":", "/", "%2F", "%", "~", "", "\0", "//"] {
        assert_ne!(part("a", &format!("x{seam}b:y")), pair, "{seam:?}");
    }
}

#[tokio::test]
async fn unusual_keys_have_a_budget_each_in_both_stores() {
    let redis = TestRedis::start().await;
    let once = policy("odd", "1/min");
    let names: Vec<Vec<u8>> = vec![
        b"{}".to_vec(),
        b"}{".to_vec(),
        b"}".to_vec(),
        b"al*".to_vec(),
        b"a\0b".to_vec(),
        b"a\r\nb".to_vec(),
        b"\xff\xfe".to_vec(),
        b"%7D".to_vec(),
        vec![b'x'; 1 << 20],
        vec![b'x'; (1 << 20) + 1],
    ];
    for subject in TestStore::all(&redis).await {
        for name in &names {
            let key = Key::new(name).unwrap();
            assert!(subject.hit(&once, &key, 0, 1).await.is_allowed());
            assert!(!subject.hit(&once, &key, 0, 1).await.is_allowed());
        }
    }
}

#[tokio::test]
async fn policies_of_different_names_have_a_budget_each() {
    let redis = TestRedis::start().await;
    for subject in TestStore::all(&redis).await {
        let key = Key::new("a").unwrap();
        for name in ["p", "p:", "p:q", "P"] {
            assert!(
                subject
                    .hit(&policy(name, "1/min"), &key, 0, 1)
                    .await
                    .is_allowed()
            );
        }
    }
}

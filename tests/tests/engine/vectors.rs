//! The published vectors, replayed on both stores.

use ratelimit_core::Outcome;
use ratelimit_tests::redis::TestRedis;
use serde_json::Value;

use crate::stores::{TestStore, key, micros, policy};

const VECTORS: &str = include_str!("../../data/algorithms.json");

#[tokio::test]
async fn every_vector_holds_on_both_stores() {
    every_vector_holds(&TestRedis::start().await).await;
}

/// Replays the vectors on both stores.
pub(crate) async fn every_vector_holds(redis: &TestRedis) {
    let file: Value = serde_json::from_str(VECTORS).expect("the vectors are JSON");
    let vectors = file["vectors"].as_array().expect("a list of vectors");

    for vector in vectors {
        for subject in TestStore::all(redis).await {
            replay(&subject, vector).await;
        }
    }

    println!("{} vectors replayed", vectors.len());
}

async fn replay(subject: &TestStore, vector: &Value) {
    let id = vector["id"].as_str().expect("an id");
    let policy = policy(id, vector["text"].as_str().expect("the limit's text"));
    for step in vector["steps"].as_array().expect("a list of steps") {
        let now_us = fraction_us(&step[0]).expect("a time");
        let cost = step[1].as_u64().expect("a cost");

        let decision = subject.hit(&policy, &key("k"), now_us, cost).await;

        let context = format!("{} {id} {step}: {decision:?}", subject.name);
        let wait_us = decision.retry_after().map(micros);
        assert_eq!(Some(decision.is_allowed()), step[2].as_bool(), "{context}");
        assert_eq!(Some(decision.remaining), step[3].as_u64(), "{context}");
        match step[4].as_str() {
            Some("never") => assert_eq!(decision.outcome, Outcome::Impossible, "{context}"),
            Some(">0") => assert!(wait_us > Some(0), "{context}"),
            _ if step[4].is_null() => {}
            _ => assert_eq!(wait_us, fraction_us(&step[4]), "{context}"),
        }
        if let Some(reset_us) = fraction_us(&step[5]) {
            assert_eq!(micros(decision.reset_after), reset_us, "{context}");
        }
        if let Some(delay_us) = fraction_us(&step[6]) {
            assert_eq!(micros(decision.delay()), delay_us, "{context}");
        }
    }
}

/// Seconds, whole or as `"a/b"`, in microseconds.
fn fraction_us(seconds: &Value) -> Option<u64> {
    if let Some(whole) = seconds.as_u64() {
        return Some(whole * 1_000_000);
    }
    let (a, b) = seconds.as_str()?.split_once('/')?;
    let (a, b): (u64, u64) = (a.parse().ok()?, b.parse().ok()?);
    assert_eq!(a * 1_000_000 % b, 0, "a time in whole microseconds");
    Some(a * 1_000_000 / b)
}

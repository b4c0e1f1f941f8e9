//! The vectors that every implementation replays.

use serde_json::Value;

use crate::model::{Answer, Model, Spec};

const VECTORS: &str = include_str!("../../../data/algorithms.json");

#[test]
fn the_vectors_hold() {
    let file: Value = serde_json::from_str(VECTORS).expect("the vectors are JSON");
    let vectors = file["vectors"].as_array().expect("vectors is a list");
    assert!(!vectors.is_empty());

    for vector in vectors {
        let limits = limits(vector);
        let mut model = Model::new();
        for step in vector["steps"].as_array().expect("steps is a list") {
            replay(&mut model, &limits, step, &vector["id"]);
        }
    }
}

fn replay(model: &mut Model, limits: &[Spec], step: &Value, id: &Value) {
    let now_us = micros(&step[0]).expect("a step has a time");
    let cost = step[1].as_u64().expect("a step has a cost");

    let overall = model.hit(limits, now_us, cost).overall;

    let context = format!("{id} {step}: {overall:?}");
    let (delay_us, retry_after_us) = match overall.answer {
        Answer::Allowed { delay_us } => (Some(delay_us), None),
        Answer::Denied { retry_after_us } => (None, Some(retry_after_us)),
        Answer::Impossible => (None, None),
    };
    assert_eq!(step[2].as_bool(), Some(delay_us.is_some()), "{context}");
    assert_eq!(step[3].as_u64(), Some(overall.remaining), "{context}");
    match step[4].as_str() {
        Some("never") => assert_eq!(overall.answer, Answer::Impossible, "{context}"),
        Some(">0") => assert!(retry_after_us > Some(0), "{context}"),
        _ => assert!(
            step[4].is_null() || micros(&step[4]) == retry_after_us,
            "{context}"
        ),
    }
    assert!(
        step[5].is_null() || micros(&step[5]) == Some(overall.reset_after_us),
        "{context}"
    );
    assert!(
        step[6].is_null() || micros(&step[6]) == delay_us,
        "{context}"
    );
}

fn limits(vector: &Value) -> Vec<Spec> {
    let number = |name: &str| {
        vector["params"][name]
            .as_u64()
            .expect("a parameter is a number")
    };
    let period_us = || number("per") * 1_000_000;
    let bucket = || (number("cap"), number("rate"), period_us());
    let window = || (number("lim"), period_us());
    let spec = match vector["algorithm"].as_str() {
        Some("token_bucket") => {
            let (capacity, refill, period_us) = bucket();
            Spec::TokenBucket {
                capacity,
                refill,
                period_us,
            }
        }
        Some("leaky_bucket") => {
            let (capacity, refill, period_us) = bucket();
            Spec::LeakyBucket {
                capacity,
                refill,
                period_us,
                police: false,
            }
        }
        Some("fixed_window") => {
            let (limit, period_us) = window();
            Spec::FixedWindow { limit, period_us }
        }
        Some("sliding_window_log") => {
            let (limit, period_us) = window();
            Spec::SlidingWindowLog {
                limit,
                period_us,
                count_denied: false,
            }
        }
        Some("sliding_window_counter") => {
            let (limit, period_us) = window();
            Spec::SlidingWindowCounter { limit, period_us }
        }
        _ => return policy(&vector["text"]),
    };
    vec![spec]
}

fn policy(text: &Value) -> Vec<Spec> {
    assert_eq!(text, "token_bucket 1/s burst 1; fixed_window 5/60s");
    vec![
        Spec::TokenBucket {
            capacity: 1,
            refill: 1,
            period_us: 1_000_000,
        },
        Spec::FixedWindow {
            limit: 5,
            period_us: 60_000_000,
        },
    ]
}

/// Seconds, whole or as "a/b", in microseconds.
fn micros(seconds: &Value) -> Option<u64> {
    let Some(fraction) = seconds.as_str() else {
        return seconds.as_u64().map(|whole| whole * 1_000_000);
    };
    let (numerator, denominator) = fraction.split_once('/')?;
    let (numerator, denominator): (u64, u64) = (numerator.parse().ok()?, denominator.parse().ok()?);
    assert_eq!(
        numerator * 1_000_000 % denominator,
        0,
        "{fraction} is no whole microsecond"
    );
    Some(numerator * 1_000_000 / denominator)
}

//! Memory equals Redis equals the exact model, field by field (laws 1 to 9 hold for the model).

use ratelimit_tests::{
    model::Model,
    redis::TestRedis,
    traces::{ALGORITHMS, Aim, Trace, to_policy},
};

use crate::subject::{Subject, key, told};

const STEPS: u64 = 20_000;
/// Short enough that the memory store never sweeps, which a clock that steps back could see.
const STEPS_PER_TRACE: u64 = 50;

async fn compare(aim: Aim, name: &str) {
    let redis = TestRedis::start().await;
    let mut compared = 0;
    let mut denied = 0;
    for seed in 0..STEPS / STEPS_PER_TRACE {
        let subjects = [Subject::memory(), Subject::redis(&redis).await];
        denied += run_trace(seed, aim, &subjects).await;
        compared += STEPS_PER_TRACE;
    }
    redis.assert_every_key_expires();
    println!("{name}: {compared} steps compared, {denied} of them denied");
    assert!(
        denied > compared / 20,
        "a trace that denies nothing proves little"
    );
}

async fn run_trace(seed: u64, aim: Aim, subjects: &[Subject]) -> u64 {
    let mut trace = Trace::new(seed, aim);
    let mut model = Model::new();
    let key = key("k");
    let mut denied = 0;
    for step in 0..STEPS_PER_TRACE {
        let hit = trace.next_hit();
        let policy = to_policy("p", &hit.limits);

        let expected = model.hit(&hit.limits, hit.now_us, hit.cost);

        let words = (expected.speaker, expected.overall, expected.limits.clone());
        for subject in subjects {
            let decision = subject.hit(&policy, &key, hit.now_us, hit.cost).await;
            assert_eq!(
                told(&decision),
                words,
                "{} at step {step} of seed {seed}: {hit:?}",
                subject.name
            );
            assert_eq!(decision.now.as_micros(), hit.now_us);
            denied += u64::from(!decision.is_allowed() && subject.name == "redis");
        }
        trace.learn(expected);
    }
    denied
}

#[tokio::test]
async fn a_token_bucket_is_the_same_everywhere() {
    compare(Aim::at(0), ALGORITHMS[0]).await;
}

#[tokio::test]
async fn a_leaky_bucket_is_the_same_everywhere() {
    compare(Aim::at(1), ALGORITHMS[1]).await;
}

#[tokio::test]
async fn a_fixed_window_is_the_same_everywhere() {
    compare(Aim::at(2), ALGORITHMS[2]).await;
}

#[tokio::test]
async fn a_sliding_window_log_is_the_same_everywhere() {
    compare(Aim::at(3), ALGORITHMS[3]).await;
}

#[tokio::test]
async fn a_sliding_window_counter_is_the_same_everywhere() {
    compare(Aim::at(4), ALGORITHMS[4]).await;
}

#[tokio::test]
async fn a_policy_of_mixed_limits_is_the_same_everywhere() {
    let aim = Aim {
        limits: (2, 4),
        ..Aim::ANYTHING
    };
    compare(aim, "policies of 2 to 4 mixed limits").await;
}

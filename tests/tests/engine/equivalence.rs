//! Memory equals Redis equals the exact model, field by field (laws 1 to 9 hold for the model).

use ratelimit_core::{
    Timestamp,
    store::{Adjustment, Hit, Overdraft, Receipt, Settlement},
};
use ratelimit_tests::{
    model::{self, Model, ModelDecision, ModelReceipt},
    redis::TestRedis,
    traces::{ALGORITHMS, Aim, Step, Trace, TracedHit, TracedSettle, to_soft_policy},
};

use crate::stores::{TestStore, key, policy, told};

const STEPS: u64 = 20_000;
/// Short enough that the memory store never sweeps, which a clock that steps back could see: each hit
/// is foreseen first.
const STEPS_PER_TRACE: u64 = 30;

async fn compare(aim: Aim, name: &str) {
    compare_on(&TestRedis::start().await, STEPS, aim, name).await;
}

/// Compares the answers of `steps` steps on `redis` with those of memory and of the model.
pub(crate) async fn compare_on(redis: &TestRedis, steps: u64, aim: Aim, name: &str) {
    let mut compared = 0;
    let mut denied = 0;
    for seed in 0..steps / STEPS_PER_TRACE {
        let subjects = TestStore::all(redis).await;
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

async fn run_trace(seed: u64, aim: Aim, subjects: &[TestStore]) -> u64 {
    let mut trace = Trace::new(seed, aim);
    let mut model = Model::new();
    let mut charges = Charges::default();
    let mut denied = 0;
    for step in 0..STEPS_PER_TRACE {
        let place = format!("step {step} of seed {seed}");
        match trace.next_step() {
            Step::Hit(hit) => {
                let expected = model.hit_with(&hit.limits, hit.now_us, hit.asked());
                denied += u64::from(!expected.overall.answer.is_allowed());
                charges.compare_hit(&hit, &expected, subjects, &place).await;
                trace.learn(expected);
            }
            Step::Settle(settle) => {
                let expected = model.settle(&settle.receipt, settle.now_us, settle.change);
                let settled = charges.settle(&settle, subjects).await;
                for (subject, settled) in subjects.iter().zip(settled) {
                    let words = (
                        settled != Settlement::LeaseLost,
                        settled == Settlement::Applied,
                    );
                    // A renewal that lost one of two slots tells no more than that.
                    let told = (expected.held, expected.held && expected.wrote);
                    assert_eq!(words, told, "{} at {place}: {settle:?}", subject.name);
                }
            }
            Step::Reset { now_us } => {
                model.reset(now_us);
                for subject in subjects {
                    subject.clock.set(Timestamp::from_micros(now_us));
                    let reset = subject.store.reset(&policy("p", "1/s"), &key("k").into());
                    reset.await.unwrap();
                }
            }
        }
    }
    denied
}

/// The receipts of each subject, found by the model's.
#[derive(Default)]
struct Charges(Vec<(ModelReceipt, Vec<Receipt>)>);

impl Charges {
    async fn compare_hit(
        &mut self,
        hit: &TracedHit,
        expected: &ModelDecision,
        subjects: &[TestStore],
        place: &str,
    ) {
        let policy = to_soft_policy("p", &hit.limits, hit.percent);
        let key = key("k");
        let overdraft = if hit.room {
            Overdraft::Allowed
        } else {
            Overdraft::Refused
        };
        let asked = Hit::new(&policy, &key)
            .cost(hit.cost)
            .slot(hit.slot)
            .overdraft(overdraft);
        let words = (
            expected.binding,
            expected.overall,
            expected.limits.clone(),
            expected.over,
        );
        let mut receipts = Vec::new();
        for subject in subjects {
            subject.clock.set(Timestamp::from_micros(hit.now_us));
            let foreseen = subject.store.hit(asked.dry_run()).await.unwrap();
            let decision = subject.store.hit(asked).await.unwrap();
            let (binding, overall, limits) = told(&decision);
            assert_eq!(
                (binding, overall, limits, decision.is_over),
                words,
                "{} at {place}: {hit:?}",
                subject.name
            );
            assert_eq!(decision.now.as_micros(), hit.now_us);
            assert_eq!(
                foreseen.is_allowed(),
                decision.is_allowed(),
                "{place}: {hit:?}"
            );
            receipts.extend(Receipt::new(asked, &decision));
        }
        if !expected.marks.is_empty() {
            let receipt = ModelReceipt {
                limits: hit.limits.clone(),
                percent: hit.percent,
                now_us: hit.now_us,
                cost: hit.cost,
                marks: expected.marks.clone(),
                slot: hit.slot,
            };
            self.0.push((receipt, receipts));
        }
    }

    async fn settle(&self, settle: &TracedSettle, subjects: &[TestStore]) -> Vec<Settlement> {
        let (charged, redeemed) = (&settle.charged, &settle.receipt);
        let (_, receipts) = self
            .0
            .iter()
            .rfind(|(known, _)| known == charged)
            .expect("it was charged");
        let cost = charged.cost;
        let change = match settle.change {
            model::Change::Settle { actual } if actual <= cost => Adjustment::Refund {
                units: cost - actual,
            },
            model::Change::Settle { actual } => Adjustment::Charge {
                units: actual - cost,
            },
            model::Change::Release => Adjustment::Release,
            model::Change::Renew => Adjustment::Renew,
        };
        let mut settled = Vec::new();
        for (subject, receipt) in subjects.iter().zip(receipts) {
            subject.clock.set(Timestamp::from_micros(settle.now_us));
            let mut receipt = receipt.clone();
            if redeemed != charged {
                let present = to_soft_policy("p", &redeemed.limits, redeemed.percent);
                receipt = Receipt::from_bytes(&receipt.to_bytes(), |_| Some(present)).unwrap();
            }
            settled.push(subject.store.settle(&receipt, change).await.unwrap());
        }
        settled
    }
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

#[tokio::test]
async fn a_concurrency_limit_is_the_same_everywhere() {
    let aim = Aim {
        settles: true,
        concurrency: true,
        ..Aim::at(5)
    };
    compare(aim, ALGORITHMS[5]).await;
}

#[tokio::test]
async fn throttle_modes_are_the_same_everywhere() {
    let aim = Aim {
        throttles: true,
        ..Aim::ANYTHING
    };
    compare(aim, "limits with a ceiling, room coming and going").await;
}

#[tokio::test]
async fn what_is_settled_is_the_same_everywhere() {
    let aim = Aim {
        settles: true,
        limits: (1, 2),
        ..Aim::ANYTHING
    };
    compare(aim, "charges given back and raised").await;
}

#[tokio::test]
async fn policies_with_everything_are_the_same_everywhere() {
    compare(Aim::EVERYTHING, "policies with everything together").await;
}

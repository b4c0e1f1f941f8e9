//! Values in Redis that no version of the scripts has written (H6).

use std::time::{Duration, UNIX_EPOCH};

use ratelimit_core::{
    FailureMode, Key, KeySet, Limiter, Policy, UncheckedReason, Verdict,
    store::{Adjustment, Hit, Store as _, StoreError},
};
use ratelimit_tests::chaos::{Fixture, Observations, Ours, eventually, ours};
use tokio::task::block_in_place;

use crate::harness::{AT_ONCE, is_checked, key, policy, remaining};

/// Numbers that no state holds; the last is an expiry an hour from now, and half a microsecond.
fn bad_numbers() -> [f64; 8] {
    let since = UNIX_EPOCH.elapsed().expect("a clock after 1970");
    let in_an_hour = since + Duration::from_secs(3_600);
    let fraction = format!("{}.5", in_an_hour.as_micros());
    [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -1.0,
        0.5,
        1e300,
        9_007_199_254_740_994.0,
        fraction.parse().expect("a number"),
    ]
}

/// Every value that differs from a valid one in its length or in one number.
fn corrupted(valid: &[u8]) -> Vec<Vec<u8>> {
    let mut values = Vec::new();
    let last = valid.len().saturating_sub(8)..valid.len();
    for length in [0, 1, 7, 8, 9, 11, 12, 13].into_iter().chain(last) {
        values.push(valid[..length.min(valid.len())].to_vec());
    }
    values.push([valid, b"x"].concat());
    values.push([valid, valid].concat());
    values.push(vec![0xff; valid.len()]);
    // The length of the first state, which stands behind the expiry.
    for length in [0, 1, 5, u32::MAX] {
        let mut value = valid.to_vec();
        value[8..12].copy_from_slice(&length.to_le_bytes());
        values.push(value);
    }
    // The expiry, and what stands at each place of a state, behind its code and its grain.
    let places = [0].into_iter().chain((16..valid.len()).step_by(8));
    for place in places.filter(|place| place + 8 <= valid.len()) {
        for number in bad_numbers() {
            let mut value = valid.to_vec();
            value[place..place + 8].copy_from_slice(&number.to_le_bytes());
            values.push(value);
        }
    }
    // A grain of zero, and one that no limit has.
    for grain in [[0; 3], [0xff; 3]] {
        let mut value = valid.to_vec();
        if valid.len() >= 16 {
            value[13..16].copy_from_slice(&grain);
            values.push(value);
        }
    }
    values
}

/// Every value that differs from a valid one in one of its last numbers, or ends before them.
fn corrupted_end(valid: &[u8]) -> Vec<Vec<u8>> {
    let mut values = vec![
        valid[..valid.len() - 1].to_vec(),
        valid[..valid.len() - 9].to_vec(),
    ];
    for place in [valid.len() - 16, valid.len() - 8] {
        for number in bad_numbers() {
            let mut value = valid.to_vec();
            value[place..place + 8].copy_from_slice(&number.to_le_bytes());
            values.push(value);
        }
    }
    values
}

/// A limiter that answers nothing from memory.
fn asking_always(ours: &Ours) -> Limiter {
    let limiter = Limiter::new(ours.store.clone()).failure_mode(FailureMode::Closed);
    limiter.without_deny_cache()
}

struct Poisoned<'a> {
    fixture: &'a Fixture,
    limiter: Limiter,
    policy: Policy,
    bad: Key,
}

impl Poisoned<'_> {
    fn name(&self) -> String {
        let (prefix, policy) = (self.fixture.prefix(), self.policy.name());
        format!("{prefix}:v1:{policy}:{{{}}}", self.bad.as_str())
    }

    fn read(&self) -> Vec<u8> {
        let name = self.name();
        block_in_place(|| self.fixture.server.command(&["GET", &name])).expect("a value")
    }

    fn delete(&self) {
        let name = self.name();
        let deleted: i64 =
            block_in_place(|| self.fixture.server.command(&["DEL", &name])).expect("an answer");
        assert_eq!(deleted, 1);
    }

    fn write(&self, value: &[u8]) {
        self.write_to(&self.name(), value);
    }

    fn write_to(&self, name: &str, value: &[u8]) {
        let mut command = redis::cmd("SET");
        command.arg(name).arg(value).arg("PX").arg(60_000);
        let written = block_in_place(|| {
            let client = redis::Client::open(self.fixture.server.url())?;
            command.exec(&mut client.get_connection()?)
        });
        written.expect("the server takes any value");
    }

    /// Stores a value of a bucket of which something was refunded, and reads it.
    async fn read_refunded(&self, ours: &Ours) -> Vec<u8> {
        let hit = Hit::new(&self.policy, &self.bad).cost(3);
        let (_, charge) = self.limiter.reserve(hit).await;
        let receipt = charge.expect("a charge").into_receipt();
        let refund = Adjustment::Refund { units: 2 };
        ours.store.settle(&receipt, refund).await.expect("a refund");
        self.read()
    }

    /// Asks for the bad key, and for new ones at the same time, so that they share calls.
    ///
    /// Tells what became of the bad key if it is neither decided nor refused, and how many others were
    /// not decided by Redis, or not charged exactly once.
    async fn ask(&self, round: usize) -> (Option<Verdict>, usize) {
        let fresh = |number: usize| key(&format!("good-{round}-{number}"));
        let is_bad = |number: usize| number == 3 || number == 5;
        let together = (0..8).map(|number| {
            let (limiter, policy) = (self.limiter.clone(), self.policy.clone());
            let is_bad = is_bad(number);
            let key = if is_bad {
                self.bad.clone()
            } else {
                fresh(number)
            };
            tokio::spawn(async move { (is_bad, limiter.check(&policy, &key).await) })
        });
        let mut verdicts = Vec::new();
        for asked in together.collect::<Vec<_>>() {
            verdicts.push(asked.await.expect("a verdict"));
        }
        let bad = self.limiter.check(&self.policy, &self.bad).await;
        let good = self.limiter.peek(&self.policy, &key("good")).await;
        verdicts.extend([(true, bad), (false, good)]);
        let lost = verdicts
            .iter()
            .filter(|(is_bad, told)| !is_bad && !is_checked(told));
        let mut lost = lost.count();
        for number in (0..8).filter(|number| !is_bad(*number)) {
            let charged_once = match self.limiter.peek(&self.policy, &fresh(number)).await {
                Verdict::Checked(look) => look.remaining + 1 == look.limit,
                _ => false,
            };
            lost += usize::from(!charged_once);
        }
        let is_fine = |told: &Verdict| match told {
            Verdict::Checked(decision) => decision.remaining <= decision.limit,
            Verdict::Unchecked { reason, .. } => *reason == UncheckedReason::Refused,
            _ => false,
        };
        let mut bad = verdicts.into_iter().filter(|(is_bad, _)| *is_bad);
        (
            bad.find(|(_, told)| !is_fine(told)).map(|(_, told)| told),
            lost,
        )
    }

    async fn heals(&self) {
        eventually("decided by the store", async || {
            is_checked(&self.limiter.peek(&self.policy, &key("good")).await)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_32_a_corrupt_value_is_its_own_keys_problem() {
    let observed = Observations::listen();
    let fixture = Fixture::start(&[]).await;
    let config = fixture.config().timeout(AT_ONCE);
    let ours = ours(config, FailureMode::Closed).await;
    let connects = observed.counter("rate_limiter_reconnects_total", "");
    let mut failures = Vec::new();
    let mut tried = 0;
    for (number, text) in [
        "token_bucket 10/h",
        "leaky_bucket 10/h queue 10",
        "fixed_window 10/366d",
        "sliding_window_log 10/h",
        "sliding_window_log 10/h count-denied",
        "sliding_window_counter 10/366d",
        "concurrency 10 lease 1h",
        "penalty_box 2/h for 1h; fixed_window 1/366d",
        "10/h; fixed_window 10/366d; sliding_window_log 10/h",
    ]
    .into_iter()
    .enumerate()
    {
        let poisoned = Poisoned {
            fixture: &fixture,
            limiter: asking_always(&ours),
            policy: policy(&format!("corrupt{number}"), text),
            bad: key("bad"),
        };
        for _ in 0..2 {
            let _ = poisoned
                .limiter
                .check(&poisoned.policy, &poisoned.bad)
                .await;
        }
        let plain = poisoned.read();
        // A value that remembers a reset has a part of its own for that.
        poisoned
            .limiter
            .reset(&poisoned.policy, &poisoned.bad)
            .await
            .unwrap();
        let _ = poisoned
            .limiter
            .check(&poisoned.policy, &poisoned.bad)
            .await;
        let after_reset = poisoned.read();
        let mut values = corrupted(&plain);
        values.extend(corrupted_end(&after_reset));
        // So has a bucket of which something was refunded.
        if text.contains("bucket") {
            poisoned
                .limiter
                .reset(&poisoned.policy, &poisoned.bad)
                .await
                .unwrap();
            poisoned.delete();
            values.extend(corrupted(&poisoned.read_refunded(&ours).await));
        }
        for value in values {
            poisoned.write(&value);
            tried += 1;
            let (odd, lost) = poisoned.ask(tried).await;
            if odd.is_some() || lost > 0 {
                let value = hex(&value);
                failures.push(format!("{text}: {lost} others lost, {odd:?} after {value}"));
                poisoned.heals().await;
            }
        }
        poisoned
            .limiter
            .reset(&poisoned.policy, &poisoned.bad)
            .await
            .unwrap();
        let look = poisoned.limiter.peek(&poisoned.policy, &poisoned.bad).await;
        assert!(is_checked(&look), "{text}: {look:?}");
    }

    println!(
        "row 32: {tried} corrupt values, {} broke other keys",
        failures.len()
    );
    failures.truncate(8);
    assert!(failures.is_empty(), "{failures:#?}");
    let replaced = observed.counter("rate_limiter_reconnects_total", "") - connects;
    assert_eq!(replaced, 0, "the connection was replaced");
}

/// A hit by two keys charges neither when the value of one cannot be read, whichever comes first.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_32_a_corrupt_value_of_one_key_leaves_no_charge_on_another() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config().timeout(AT_ONCE), FailureMode::Closed).await;
    let own_limit = policy("two", "10/h");
    for (text, refund) in [
        ("10/h; 10/h by ip", true),
        ("10/h; fixed_window 10/366d by ip", false),
        ("10/h; sliding_window_log 10/h count-denied by ip", false),
    ] {
        let poisoned = Poisoned {
            fixture: &fixture,
            limiter: asking_always(&ours),
            policy: policy("two", text),
            bad: key("home"),
        };
        let name = format!(
            "{}:v1:two~ip:{{{}}}",
            fixture.prefix(),
            poisoned.bad.as_str()
        );
        let alice = key(&format!("alice-{refund}-{}", text.len()));
        let keys = KeySet::new(alice.clone()).with("ip", poisoned.bad.clone());
        let (_, charge) = poisoned
            .limiter
            .reserve(Hit::for_keys(&poisoned.policy, &keys).cost(2))
            .await;
        let receipt = charge.expect("a charge").into_receipt();
        let valid: Vec<u8> =
            block_in_place(|| fixture.server.command(&["GET", &name])).expect("a value");
        let mut values = corrupted(&valid);
        if refund {
            let back = Adjustment::Refund { units: 1 };
            ours.store.settle(&receipt, back).await.expect("a refund");
            let refunded: Vec<u8> =
                block_in_place(|| fixture.server.command(&["GET", &name])).expect("a value");
            values.extend(corrupted(&refunded));
        }
        let left = async || remaining(&poisoned.limiter.peek(&own_limit, &alice).await);
        for value in values {
            let before = left().await;
            poisoned.write_to(&name, &value);

            let verdict = poisoned.limiter.check_keys(&poisoned.policy, &keys).await;

            let charged = match &verdict {
                Verdict::Checked(decision) => u64::from(decision.is_allowed()),
                _ => 0,
            };
            assert_eq!(
                before - left().await,
                charged,
                "{text} {}: {verdict:?}",
                hex(&value)
            );
            if before <= 2 {
                poisoned.limiter.reset(&own_limit, &alice).await.unwrap();
            }
        }
        block_in_place(|| fixture.server.command::<i64>(&["DEL", &name])).expect("an answer");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_32_a_charge_on_a_corrupt_value_is_refused_and_breaks_nothing() {
    let observed = Observations::listen();
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config().timeout(AT_ONCE), FailureMode::Closed).await;
    let connects = observed.counter("rate_limiter_reconnects_total", "");
    for (number, text) in [
        "token_bucket 10/h",
        "fixed_window 10/366d",
        "sliding_window_log 10/h",
        "sliding_window_counter 10/366d",
        "concurrency 10 lease 1h",
    ]
    .into_iter()
    .enumerate()
    {
        let poisoned = Poisoned {
            fixture: &fixture,
            limiter: asking_always(&ours),
            policy: policy(&format!("settled{number}"), text),
            bad: key("bad"),
        };
        let hit = || Hit::new(&poisoned.policy, &poisoned.bad);
        let (_, charge) = poisoned.limiter.reserve(hit()).await;
        let valid = poisoned.read();
        let receipt = charge.expect("a charge").into_receipt();
        for value in corrupted(&valid) {
            poisoned.write(&value);
            for change in [
                Adjustment::Refund { units: 1 },
                Adjustment::Charge { units: 1 },
                Adjustment::Renew,
                Adjustment::Release,
            ] {
                let settled = ours.store.settle(&receipt, change).await;
                let is_fine = matches!(settled, Ok(_) | Err(StoreError::Refused { .. }));
                assert!(is_fine, "{text} {change:?} {}: {settled:?}", hex(&value));
            }
            let other = poisoned.limiter.peek(&poisoned.policy, &key("good")).await;

            assert!(is_checked(&other), "{text} {}: {other:?}", hex(&value));
        }
    }

    let replaced = observed.counter("rate_limiter_reconnects_total", "") - connects;
    assert_eq!(replaced, 0, "the connection was replaced");
}

fn hex(value: &[u8]) -> String {
    use std::fmt::Write as _;
    value.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

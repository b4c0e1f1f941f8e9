//! What rows share: an instance to ask, and words to ask it with.

use std::time::{Duration, Instant};

use ratelimit_core::{Key, Limiter, Policy, Verdict};
use ratelimit_tests::chaos::{Ours, eventually};

/// What a caller may wait at the most: the budget, and the pause of a busy machine.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(1);
/// How soon the store is asked again; the goal is one second.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// A key by name.
pub(crate) fn key(name: &str) -> Key {
    Key::new(name).expect("a valid key")
}

/// A policy from its text.
pub(crate) fn policy(name: &str, text: &str) -> Policy {
    Policy::parse(name, text).expect("a valid policy")
}

/// Whether the store decided.
pub(crate) const fn is_checked(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Checked(_))
}

/// What remains, by the store's own word.
pub(crate) fn remaining(verdict: &Verdict) -> u64 {
    match verdict {
        Verdict::Checked(decision) => decision.remaining,
        unchecked => panic!("not decided by the store: {unchecked:?}"),
    }
}

/// Makes calls for a while, asserts that none waits, and counts those that the store decided.
pub(crate) async fn calls(limiter: &Limiter, policy: &Policy, span: Duration) -> (usize, usize) {
    let (mut checked, mut unchecked) = (0, 0);
    let started = Instant::now();
    while started.elapsed() < span {
        let asked = Instant::now();
        let verdict = limiter.check(policy, &key("calls")).await;
        assert!(asked.elapsed() < AT_ONCE, "waited {:?}", asked.elapsed());
        if is_checked(&verdict) {
            checked += 1;
        } else {
            unchecked += 1;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    (checked, unchecked)
}

/// Waits until the store decides and writes, asserts that it does so soon, and tells when.
pub(crate) async fn heals(ours: &Ours) -> Duration {
    let probe = policy("probe", "fixed_window 1000000/366d");
    let healed = eventually("decided by the store", async || {
        is_checked(&ours.limiter.check(&probe, &key("probe")).await)
    })
    .await;
    assert!(healed < SOON, "healed only after {healed:?}");
    healed
}

/// How much memory this process holds, in bytes.
pub(crate) fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("a Linux machine");
    let resident = pages.split(' ').nth(1).expect("its second number");
    resident.parse::<u64>().expect("a number of pages") * 4_096
}

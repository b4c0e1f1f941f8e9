//! One line about one fault.

use std::{collections::HashMap, fmt, time::Duration};

use futures_util::future::join_all;

use super::{
    layer::{Audit, CallOutcome},
    ledger::Ledger,
    load::{COMMON_LIMIT, endless},
};

/// Longer than any pause of a busy machine; the goals themselves are printed and not asserted.
const LONGEST_WAIT: Duration = Duration::from_millis(25 + 1_000);
const LONGEST_HEALING: Duration = Duration::from_secs(5);

const AUDITED_AT_ONCE: usize = 128;

/// What a fault did to callers and counts.
#[derive(Clone, Debug)]
pub struct Report {
    /// The row of the list of faults.
    pub row: u32,
    /// What was broken.
    pub fault: &'static str,
    /// How many calls were made.
    pub decisions: usize,
    /// How many of them the store did not decide.
    pub unchecked: usize,
    /// How long all but one in a thousand took at most.
    pub slow: Duration,
    /// How long the longest took.
    pub longest: Duration,
    /// How long the store was not asked after it could answer again; nothing when that never was.
    pub healed: Option<Duration>,
    /// Units counted beyond the one that a call asked for.
    pub twice: u64,
    /// Calls that were answered without the store and counted afterwards. The local fallback charges those that passed.
    pub after_refusal: u64,
    /// Those of them that did not pass.
    pub denied_and_counted: u64,
    /// Calls that the store allowed and did not count.
    pub forgotten: u64,
    /// Calls let through beyond what the failure mode allows.
    pub over_admitted: u64,
}

/// What the report cannot read from the calls.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The row of the list of faults.
    pub row: u32,
    /// What was broken.
    pub fault: &'static str,
    /// How long healing took.
    pub healed: Option<Duration>,
    /// The phases whose unchecked calls cannot have run before their callers were answered.
    pub dead_phases: Vec<usize>,
    /// How many times the limit of the common key may be spent: once by the store, once more for
    /// each store of a process that stood in, and for each time that the server lost its data.
    pub budgets: u64,
}

impl Report {
    /// Holds what callers were told against what the server counted.
    pub async fn new(expected: Expected, ledger: &Ledger, audit: &dyn Audit) -> Report {
        let counted = counted(ledger, audit).await;
        let of = |key: &Option<String>| key.as_ref().and_then(|key| counted.get(key)).copied();
        let own = || ledger.entries().iter().filter(|entry| entry.key.is_some());
        let twice = own().filter_map(|entry| of(&entry.key)?.checked_sub(1));
        let after_refusal = own()
            .filter(|entry| expected.dead_phases.contains(&entry.phase))
            .filter(|entry| !entry.told.is_checked())
            .filter(|entry| of(&entry.key) > Some(0));
        let denied_and_counted = after_refusal
            .clone()
            .filter(|entry| !entry.told.is_allowed());
        let forgotten = own()
            .filter(|entry| entry.told == CallOutcome::Checked { allowed: true })
            .filter(|entry| of(&entry.key) == Some(0));
        let bound = expected.budgets * COMMON_LIMIT;
        Report {
            row: expected.row,
            fault: expected.fault,
            decisions: ledger.entries().len(),
            unchecked: ledger.unchecked(),
            slow: ledger.slowest_but(1_000),
            longest: ledger.longest(),
            healed: expected.healed,
            twice: twice.sum(),
            denied_and_counted: denied_and_counted.count() as u64,
            after_refusal: after_refusal.count() as u64,
            forgotten: forgotten.count() as u64,
            over_admitted: ledger.admitted_in_common().saturating_sub(bound),
        }
    }

    /// Prints the line, and asserts what every fault must leave true.
    ///
    /// # Panics
    ///
    /// When something is not true.
    pub fn assert_survived(&self) {
        println!("{self}");
        assert!(self.longest < LONGEST_WAIT, "a caller waited: {self}");
        assert!(
            self.healed.is_some_and(|healed| healed < LONGEST_HEALING),
            "not healed in time: {self}"
        );
        assert_eq!(self.twice, 0, "counted twice: {self}");
        assert_eq!(self.denied_and_counted, 0, "denied and counted: {self}");
        assert_eq!(self.over_admitted, 0, "over-admitted: {self}");
    }

    /// The measured part, as cells of a table.
    pub fn cells(&self) -> [String; 7] {
        [
            format!("{} ({})", self.decisions, self.unchecked),
            millis(self.slow),
            millis(self.longest),
            self.healed.map_or_else(|| "not at all".to_owned(), millis),
            self.twice.to_string(),
            self.after_refusal.to_string(),
            self.over_admitted.to_string(),
        ]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [decisions, slow, longest, healed, twice, after, over] = self.cells();
        write!(
            f,
            "row {:2} {}: {decisions} decisions (without the store), p99.9 {slow}, longest {longest}, \
             healed in {healed}, counted twice {twice}, counted after refusal {after}, over-admitted {over}",
            self.row, self.fault
        )
    }
}

/// What the server counted at each own key.
async fn counted(ledger: &Ledger, audit: &dyn Audit) -> HashMap<String, u64> {
    let endless = endless();
    let keys = ledger.entries().iter().filter_map(|e| e.key.as_ref());
    let mut counted = HashMap::new();
    for some in keys.collect::<Vec<_>>().chunks(AUDITED_AT_ONCE) {
        let spent = some.iter().map(|key| audit.counted(&endless, key));
        counted.extend(some.iter().copied().cloned().zip(join_all(spent).await));
    }
    counted
}

/// A span in milliseconds, to the tenth.
fn millis(span: Duration) -> String {
    let tenths = span.as_micros() / 100;
    format!("{}.{} ms", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ratelimit_core::Policy;

    use super::*;
    use crate::chaos::{layer::Later, ledger::Entry};

    /// A server that counted as much as the key's name says.
    #[derive(Debug)]
    struct AsNamed;

    impl Audit for AsNamed {
        fn counted<'a>(&'a self, _: &'a Policy, key: &'a str) -> Later<'a, u64> {
            let counted = key.split('-').next_back().map(str::parse);
            Box::pin(async move { counted.expect("a word").expect("a number") })
        }
    }

    fn ledger(
        calls: impl IntoIterator<Item = (usize, Option<&'static str>, CallOutcome)>,
    ) -> Ledger {
        let mut ledger = Ledger::default();
        for (phase, key, told) in calls {
            ledger.add(Entry {
                phase,
                key: key.map(str::to_owned),
                began: Instant::now(),
                took: Duration::ZERO,
                told,
            });
        }
        ledger
    }

    async fn report(ledger: &Ledger) -> Report {
        let expected = Expected {
            row: 0,
            fault: "none",
            healed: None,
            dead_phases: vec![1],
            budgets: 1,
        };
        Report::new(expected, ledger, &AsNamed).await
    }

    #[tokio::test]
    async fn wrong_counts_are_detected() {
        let (checked, unchecked) = (
            CallOutcome::Checked { allowed: true },
            CallOutcome::Unchecked { allowed: true },
        );

        let report = report(&ledger([
            (0, Some("a-1"), checked),
            (0, Some("b-3"), checked),
            (0, Some("c-0"), checked),
            (0, Some("d-1"), unchecked),
            (1, Some("e-1"), unchecked),
            (1, Some("f-0"), unchecked),
        ]))
        .await;

        assert_eq!(report.twice, 2);
        assert_eq!(report.forgotten, 1);
        assert_eq!(report.after_refusal, 1);
        assert_eq!(report.unchecked, 3);
    }

    #[tokio::test]
    async fn over_admission_is_detected() {
        let admitted = (0, None, CallOutcome::Unchecked { allowed: true });
        let calls = usize::try_from(COMMON_LIMIT + 3).expect("a small limit");

        let report = report(&ledger(vec![admitted; calls])).await;

        assert_eq!(report.over_admitted, 3);
    }
}

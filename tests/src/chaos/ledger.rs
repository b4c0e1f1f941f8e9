//! What callers were told, and when.

use std::time::{Duration, Instant};

use super::layer::CallOutcome;

/// One call.
#[derive(Clone, Debug)]
pub struct Entry {
    /// In which phase of the test it was made.
    pub phase: usize,
    /// Its own key; without one it spent of the key that all share.
    pub key: Option<String>,
    /// When it was made.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
    /// What its caller was told.
    pub told: CallOutcome,
}

/// All calls, in the order of their answers.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    entries: Vec<Entry>,
}

impl Ledger {
    /// Adds a call.
    pub fn add(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// All calls.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The calls of one phase.
    pub fn phase(&self, phase: usize) -> impl Iterator<Item = &Entry> {
        let of_phase = move |entry: &&Entry| entry.phase == phase;
        self.entries.iter().filter(of_phase)
    }

    /// How many calls the store did not decide.
    pub fn unchecked(&self) -> usize {
        let unchecked = |entry: &&Entry| !entry.told.is_checked();
        self.entries.iter().filter(unchecked).count()
    }

    /// How many calls on the key that all share were let through.
    pub fn admitted_in_common(&self) -> u64 {
        let admitted = |entry: &&Entry| entry.key.is_none() && entry.told.is_allowed();
        self.entries.iter().filter(admitted).count() as u64
    }

    /// How long after `since` the store first decided a call that was made after it, and that had to
    /// be written: a denial can come from a server that takes no writes.
    pub fn healed_after(&self, since: Instant) -> Option<Duration> {
        self.entries
            .iter()
            .filter(|entry| entry.began >= since && entry.key.is_some() && entry.told.is_checked())
            .map(|entry| entry.began + entry.took - since)
            .min()
    }

    /// How long a call took at most, leaving out the slowest one in `one_in`.
    pub fn slowest_but(&self, one_in: usize) -> Duration {
        let mut spans: Vec<Duration> = self.entries.iter().map(|entry| entry.took).collect();
        spans.sort_unstable();
        let place = (spans.len() - spans.len() / one_in).saturating_sub(1);
        spans.get(place).copied().unwrap_or_default()
    }

    /// How long the longest call took.
    pub fn longest(&self) -> Duration {
        self.slowest_but(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_leave_out_the_slowest() {
        let mut ledger = Ledger::default();
        for millis in 1..=1_000 {
            ledger.add(Entry {
                phase: 0,
                key: None,
                began: Instant::now(),
                took: Duration::from_millis(millis),
                told: CallOutcome::Nothing,
            });
        }

        assert_eq!(ledger.slowest_but(1_000), Duration::from_millis(999));
        assert_eq!(ledger.slowest_but(100), Duration::from_millis(990));
        assert_eq!(ledger.longest(), Duration::from_secs(1));
    }
}

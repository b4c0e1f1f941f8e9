//! The last 300 seconds.

use std::collections::VecDeque;

use super::rates::SecondRates;

/// The most seconds that are kept.
const MAX_POINTS: usize = 300;

/// The rates of the last seconds, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(VecDeque<HistoryPoint>);

/// One second. A second without a sample has no rates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryPoint {
    /// Unix seconds.
    pub(crate) at: u64,
    pub(crate) rates: Option<SecondRates>,
}

impl History {
    /// Adds a second after `missed` seconds without a sample.
    pub(super) fn push(&mut self, at: u64, missed: u64, rates: SecondRates) {
        let missed = missed.min(MAX_POINTS as u64).min(at);
        for back in (1..=missed).rev() {
            let at = at - back;
            self.push_point(HistoryPoint { at, rates: None });
        }
        let rates = Some(rates);
        self.push_point(HistoryPoint { at, rates });
    }

    fn push_point(&mut self, point: HistoryPoint) {
        if self.0.len() == MAX_POINTS {
            self.0.pop_front();
        }
        self.0.push_back(point);
    }

    pub(crate) fn points(&self) -> impl Iterator<Item = &HistoryPoint> {
        self.0.iter()
    }
}

//! The last 300 seconds.

use std::{collections::VecDeque, time::Duration};

use super::rates::SecondRates;

/// The most seconds that are kept.
const MAX_POINTS: u64 = 300;

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
    /// Adds a second, `elapsed` after the one before. The seconds between them are gaps.
    ///
    /// A system clock that is set back starts the history anew. One that is set forward leaves no more gaps than time passed.
    /// A second that is there already keeps its rates.
    pub(super) fn push(&mut self, at: u64, elapsed: Duration, rates: SecondRates) {
        let last = self.0.back().map(|point| point.at);
        if last == Some(at) {
            return;
        }
        if last.is_some_and(|last| at < last) {
            self.0.clear();
        } else if let Some(last) = last {
            let missed = (at - last - 1).min(elapsed.as_secs());
            for at in at - missed.min(MAX_POINTS)..at {
                self.push_point(HistoryPoint { at, rates: None });
            }
        }
        let rates = Some(rates);
        self.push_point(HistoryPoint { at, rates });
    }

    fn push_point(&mut self, point: HistoryPoint) {
        if self.0.len() as u64 == MAX_POINTS {
            self.0.pop_front();
        }
        self.0.push_back(point);
    }

    pub(crate) fn points(&self) -> impl Iterator<Item = &HistoryPoint> {
        self.0.iter()
    }
}

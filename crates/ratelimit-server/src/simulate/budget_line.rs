//! The remaining budget of one limit over time.

use super::time_span::{TimeSpan, signed};

/// The resolution of a line: a chart has no more columns.
const COLUMNS: u64 = 720;

/// Points in a column: the first, the lowest, the highest and the last draw the same as all.
const MAX_IN_COLUMN: usize = 4;

/// Remaining budget of one limit for one key over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BudgetLine {
    pub(crate) name: String,
    pub(crate) limit: u64,
    pub(crate) points: Vec<BudgetPoint>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BudgetPoint {
    pub(crate) at_micros: i64,
    pub(crate) remaining: u64,
}

impl BudgetLine {
    pub(super) const fn new(name: String, limit: u64) -> BudgetLine {
        BudgetLine {
            name,
            limit,
            points: Vec::new(),
        }
    }

    /// Adds a point, in the order of time. The first also stands at the start of the span.
    ///
    /// A point that changes nothing in a drawing is left out, so the line of a long trace stays short.
    pub(super) fn push(&mut self, time_span: TimeSpan, at_micros: u64, remaining: u64) {
        let at_micros = signed(at_micros);
        if self.points.is_empty() && time_span.start_micros < at_micros {
            self.points.push(BudgetPoint {
                at_micros: time_span.start_micros,
                remaining,
            });
        }
        let point = BudgetPoint {
            at_micros,
            remaining,
        };
        if let [.., before, last] = &mut self.points[..]
            && before.remaining == remaining
            && last.remaining == remaining
        {
            *last = point;
            return;
        }
        self.points.push(point);
        self.thin_last_column(time_span);
    }

    fn thin_last_column(&mut self, time_span: TimeSpan) {
        let column = |point: &BudgetPoint| time_span.part_of(point.at_micros, COLUMNS);
        let Some(first) = self.points.len().checked_sub(MAX_IN_COLUMN + 1) else {
            return;
        };
        let last = &self.points[first..];
        if column(&last[0]) != column(&last[MAX_IN_COLUMN]) {
            return;
        }
        let lowest = (0..last.len()).min_by_key(|index| last[*index].remaining);
        let highest = (0..last.len()).max_by_key(|index| last[*index].remaining);
        let is_needed = |index: usize| Some(index) == lowest || Some(index) == highest;
        if let Some(spare) = (1..MAX_IN_COLUMN).find(|index| !is_needed(*index)) {
            self.points.remove(first + spare);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME_SPAN: TimeSpan = TimeSpan {
        start_micros: 0,
        end_micros: 720,
    };

    fn line(points: &[(u64, u64)]) -> Vec<(i64, u64)> {
        let mut line = BudgetLine::new("k".to_owned(), 99);
        for (at_micros, remaining) in points {
            line.push(TIME_SPAN, *at_micros, *remaining);
        }
        let points = line.points.iter();
        points
            .map(|point| (point.at_micros, point.remaining))
            .collect()
    }

    #[test]
    fn a_long_level_has_two_points() {
        assert_eq!(
            line(&[(0, 5), (1, 5), (2, 5), (3, 4)]),
            [(0, 5), (2, 5), (3, 4)]
        );
    }

    #[test]
    fn a_column_keeps_its_ends_and_extremes() {
        let crowded = [(7, 9), (7, 8), (7, 2), (7, 5), (7, 11), (7, 6), (8, 7)];

        assert_eq!(
            line(&crowded),
            [(0, 9), (7, 9), (7, 2), (7, 11), (7, 6), (8, 7)]
        );
    }
}

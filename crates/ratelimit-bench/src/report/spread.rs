//! Repeated measurements of one thing.

/// The middle of several measurements, and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The least.
    pub low: f64,
    /// As many are above as below.
    pub median: f64,
    /// The most.
    pub high: f64,
}

impl Spread {
    /// Of at least one measurement.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn of(measurements: &[f64]) -> Spread {
        let mut sorted = measurements.to_vec();
        sorted.sort_by(f64::total_cmp);
        let [low, .., high] = sorted[..] else {
            return Spread::exactly(sorted[0]);
        };
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Spread { low, median, high }
    }

    /// Of a count that does not vary.
    pub const fn exactly(count: f64) -> Spread {
        Spread {
            low: count,
            median: count,
            high: count,
        }
    }

    /// In another unit, or above something that lies below all.
    #[must_use]
    pub fn map(self, change: impl Fn(f64) -> f64) -> Spread {
        let (one, other) = (change(self.low), change(self.high));
        Spread {
            low: one.min(other),
            median: change(self.median),
            high: one.max(other),
        }
    }
}

/// Measures all subjects in turn, again and again, so that each meets the same machine.
pub fn in_turn(rounds: usize, subjects: &mut [Box<dyn FnMut() -> f64 + '_>]) -> Vec<Spread> {
    let mut measured = vec![Vec::new(); subjects.len()];
    for _ in 0..rounds.max(1) {
        for (subject, into) in subjects.iter_mut().zip(&mut measured) {
            into.push(subject());
        }
    }
    measured.iter().map(|of_one| Spread::of(of_one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(low: f64, median: f64, high: f64) -> Spread {
        Spread { low, median, high }
    }

    #[test]
    fn the_median_is_the_middle_or_between_the_two() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), spread(1.0, 2.0, 3.0));
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]), spread(1.0, 2.5, 4.0));
        assert_eq!(Spread::of(&[7.0]), Spread::exactly(7.0));
    }

    #[test]
    fn the_edges_stay_in_order_in_another_unit() {
        let turned = spread(1.0, 2.0, 9.0).map(|value| 10.0 - value);

        assert_eq!(turned, spread(1.0, 8.0, 9.0));
    }

    #[test]
    fn subjects_take_turns() {
        let order = std::cell::RefCell::new(String::new());
        let tell = |name: char| {
            order.borrow_mut().push(name);
            f64::from(u32::from(name))
        };

        let spreads = in_turn(3, &mut [Box::new(|| tell('a')), Box::new(|| tell('b'))]);

        assert_eq!(*order.borrow(), "ababab");
        assert_eq!(spreads[1], Spread::exactly(98.0));
    }
}

//! How long to measure.

use std::time::{Duration, Instant};

use crate::report::{Spread, in_turn};

/// How long to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Enough to see that it works.
    Quick,
    /// Enough to be quoted.
    Full,
}

impl Plan {
    /// How often each subject takes its turn.
    pub const fn rounds(self) -> usize {
        match self {
            Plan::Quick => 3,
            Plan::Full => 7,
        }
    }

    /// How long one turn of something that waits for a server takes.
    pub const fn turn(self) -> Duration {
        match self {
            Plan::Quick => Duration::from_millis(250),
            Plan::Full => Duration::from_millis(1_500),
        }
    }

    /// How often something quick is done in one turn.
    pub const fn times(self) -> usize {
        match self {
            Plan::Quick => 100_000,
            Plan::Full => 400_000,
        }
    }

    /// How often many tasks ask a server under callgrind at once.
    pub const fn bursts(self) -> u32 {
        match self {
            Plan::Quick => 1,
            Plan::Full => 4,
        }
    }

    /// The nanoseconds of each work, measured in turn. A work receives the number of its run.
    pub fn nanoseconds(self, times: usize, works: &mut [&mut dyn FnMut(usize)]) -> Vec<Spread> {
        let subjects = works.iter_mut().map(|work| {
            Box::new(move || nanoseconds(times, &mut **work)) as Box<dyn FnMut() -> f64>
        });
        in_turn(self.rounds(), &mut subjects.collect::<Vec<_>>())
    }
}

fn nanoseconds(times: usize, work: &mut dyn FnMut(usize)) -> f64 {
    let started = Instant::now();
    (0..times).for_each(work);
    started.elapsed().as_secs_f64() * 1e9 / exact(times)
}

/// A count as a number that can be divided.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub(super) const fn exact(count: usize) -> f64 {
    count as f64
}

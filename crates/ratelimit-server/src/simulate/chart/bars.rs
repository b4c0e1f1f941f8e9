//! The hits as stacked bars.

use std::fmt::Write as _;

use super::{LEFT, RIGHT, draw_line, legend::class_of, time_axis::TimeAxis};
use crate::{
    simulate::{hit_outcome::HitOutcome, scene::Bin},
    svg::{Anchor, Svg, Tenths, round_step},
};

const PLOT: i64 = 60;

/// The most steps of the scale.
const MAX_STEPS: u64 = 2;

/// The outcome of each row of a bin.
const ROWS: [HitOutcome; 4] = [
    HitOutcome::Allowed,
    HitOutcome::Delayed,
    HitOutcome::Over,
    HitOutcome::Denied,
];

/// A bar for each bin with hits.
pub(super) struct Bars {
    bins: Vec<Bin>,
    /// The hits of the fullest bin.
    most: u64,
}

impl Bars {
    /// The height with the name of the scale.
    pub(super) const HEIGHT: i64 = 24 + PLOT;

    pub(super) fn new(bins: Vec<Bin>) -> Bars {
        let most = bins.iter().map(|bin| bin.iter().sum()).max();
        Bars {
            bins,
            most: most.unwrap_or(0).max(1),
        }
    }

    pub(super) fn draw_scale(&self, svg: &mut Svg, top: i64) {
        let name = (Tenths::px(LEFT), Tenths::px(top + 16));
        svg.text(name, Anchor::Start, "", "hits");
        let step = round_step(self.most, MAX_STEPS);
        for value in (0..=self.most / step).map(|tick| tick * step) {
            let y = Tenths(bottom(top).0 - self.height(value).0);
            draw_line(svg, if value == 0 { "axis" } else { "grid" }, y);
            let at = (Tenths::px(LEFT - 8), Tenths(y.0 + 40));
            svg.text(at, Anchor::End, "", &value.to_string());
        }
    }

    pub(super) fn draw(&self, svg: &mut Svg, top: i64, axis: TimeAxis) {
        let places = i64::try_from(self.bins.len()).unwrap_or(1).max(1);
        let width = (RIGHT - LEFT) * 10 / places;
        for (place, bin) in (0_i64..).zip(&self.bins) {
            if bin.iter().all(|count| *count == 0) {
                continue;
            }
            let x = Tenths(LEFT * 10 + (RIGHT - LEFT) * 10 * place / places + 5);
            let mut rects = String::new();
            let mut counts = Vec::new();
            let mut below = 0;
            for (outcome, count) in ROWS.into_iter().zip(bin).filter(|row| *row.1 > 0) {
                let from = self.height(below);
                below += count;
                // A hit among very many is still seen.
                let height = Tenths((self.height(below).0 - from.0).max(8));
                let y = Tenths(bottom(top).0 - from.0 - height.0);
                let (class, wide) = (class_of(outcome), Tenths((width - 10).max(15)));
                let _ = write!(
                    rects,
                    "<rect class=\"fill {class}\" x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"{height}\"/>"
                );
                counts.push(format!("{count} {}", outcome.as_str()));
            }
            let at = axis.bin_label(place, places);
            let counts = counts.join(", ");
            svg.add(format_args!(
                "<g class=\"bin\"><title>{at}: {counts}</title>{rects}</g>"
            ));
        }
    }

    fn height(&self, count: u64) -> Tenths {
        let height =
            u128::from(count) * u128::from(PLOT.unsigned_abs() * 10) / u128::from(self.most);
        Tenths(i64::try_from(height).unwrap_or(0))
    }
}

const fn bottom(top: i64) -> Tenths {
    Tenths::px(top + 24 + PLOT)
}

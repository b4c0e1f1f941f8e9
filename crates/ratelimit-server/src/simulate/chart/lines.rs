//! The remaining budgets as lines of steps.

use std::fmt::Write as _;

use super::{LEFT, draw_line, line_colours::LineColours, time_axis::TimeAxis};
use crate::{
    simulate::budget_line::BudgetLine,
    svg::{Anchor, Svg, Tenths, round_step},
};

const PLOT: i64 = 110;

/// The most steps of the scale.
const MAX_STEPS: u64 = 4;

/// The budgets of a run over one scale: units if all limits are equal, else percent of each limit.
pub(super) struct BudgetPlot<'a> {
    budgets: &'a [BudgetLine],
    /// The limit of all budgets.
    limit: Option<u64>,
}

impl<'a> BudgetPlot<'a> {
    /// The height with the name of the scale and the distance to the bars.
    pub(super) const HEIGHT: i64 = 24 + PLOT + 14;

    pub(super) fn new(budgets: &'a [BudgetLine]) -> BudgetPlot<'a> {
        let mut limits = budgets.iter().map(|budget| budget.limit);
        let first = limits.next().filter(|limit| *limit > 0);
        BudgetPlot {
            budgets,
            limit: first.filter(|first| limits.all(|limit| limit == *first)),
        }
    }

    pub(super) const fn plot_top(top: i64) -> i64 {
        top + 24
    }

    pub(super) fn draw_scale(&self, svg: &mut Svg, top: i64) {
        let (most, unit) = match self.limit {
            Some(limit) => (limit, ""),
            None => (100, " %"),
        };
        let name = (Tenths::px(LEFT), Tenths::px(top + 16));
        svg.text(name, Anchor::Start, "", "remaining");
        let step = round_step(most, MAX_STEPS);
        for value in (0..=most / step).map(|tick| tick * step) {
            let y = y(top, value, most);
            draw_line(svg, if value == 0 { "axis" } else { "grid" }, y);
            let at = (Tenths::px(LEFT - 8), Tenths(y.0 + 40));
            svg.text(at, Anchor::End, "", &format!("{value}{unit}"));
        }
    }

    pub(super) fn draw(&self, svg: &mut Svg, top: i64, axis: TimeAxis, colours: &LineColours<'_>) {
        for budget in self.budgets {
            let most = budget.limit.max(1);
            let mut path = String::new();
            let mut height = None;
            for point in &budget.points {
                let y = y(top, point.remaining.min(most), most);
                let x = axis.x(point.at_micros);
                match height.replace(y) {
                    None => path = format!("M{x} {y}"),
                    Some(before) if before == y => {}
                    Some(_) => {
                        let _ = write!(path, "H{x}V{y}");
                    }
                }
            }
            if let Some(last) = budget.points.last() {
                let _ = write!(path, "H{}", axis.x(last.at_micros));
            }
            let class = colours.class(&budget.name);
            svg.add(format_args!(
                "<path class=\"budget ln {class}\" d=\"{path}\"/>"
            ));
        }
    }
}

fn y(top: i64, value: u64, most: u64) -> Tenths {
    let bottom = BudgetPlot::plot_top(top) + PLOT;
    let part = u128::from(value) * u128::from(PLOT.unsigned_abs() * 10) / u128::from(most.max(1));
    Tenths(bottom * 10 - i64::try_from(part).unwrap_or(0))
}

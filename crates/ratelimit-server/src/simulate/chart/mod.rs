//! The SVG chart of a replay.

mod bars;
mod legend;
mod line_colours;
mod lines;
mod time_axis;

use ratelimit_core::Policy;

use self::{
    bars::Bars, legend::Legend, line_colours::LineColours, lines::BudgetPlot, time_axis::TimeAxis,
};
use super::{
    replay::Replay,
    scene::{bins, departures, window_edges},
    summary::Summary,
    time_span::TimeSpan,
};
use crate::svg::{Anchor, Svg, Tenths};

/// The left and the right edge of the plots.
const LEFT: i64 = 64;
const RIGHT: i64 = 740;

/// Distance of two rows of text.
const ROW: i64 = 18;

/// A policy and the result of its run.
pub(super) struct ChartRun<'a> {
    pub(super) title: &'a str,
    pub(super) policy: &'a Policy,
    pub(super) replay: Replay,
    pub(super) summary: Summary,
}

/// Draws one panel per run: the budgets over time, the hits as stacked bars, and departures from a leaky bucket.
pub(super) fn draw(time_span: TimeSpan, runs: &[ChartRun<'_>]) -> String {
    let axis = TimeAxis::new(time_span);
    let colours = LineColours::of_runs(runs);
    let panels = runs.iter().map(|run| Panel::new(axis, run, &colours));
    let panels: Vec<Panel<'_>> = panels.collect();
    let height: i64 = panels.iter().map(Panel::height).sum();
    let titles: Vec<&str> = runs.iter().map(|run| run.title).collect();
    let summaries = runs.iter();
    let summaries = summaries.map(|run| format!("{}: {}.", run.title, run.summary));
    let summaries: Vec<String> = summaries.collect();
    let mut svg = Svg::new(height, &titles.join(" and "), &summaries.join(" "));
    let mut top = 0;
    for panel in &panels {
        panel.draw(&mut svg, top, &colours);
        top += panel.height();
    }
    svg.finish()
}

/// The drawing of one run.
struct Panel<'a> {
    axis: TimeAxis,
    legend: Legend,
    budgets: BudgetPlot<'a>,
    bars: Bars,
    edges: Vec<i64>,
    departures: Vec<i64>,
}

impl<'a> Panel<'a> {
    fn new(axis: TimeAxis, run: &'a ChartRun<'_>, colours: &LineColours<'_>) -> Panel<'a> {
        let span = axis.time_span;
        Panel {
            axis,
            legend: Legend::new(run, colours),
            budgets: BudgetPlot::new(&run.replay.budgets),
            bars: Bars::new(bins(span, &run.replay)),
            edges: window_edges(span, run.policy),
            departures: departures(span, run.policy, &run.replay),
        }
    }

    fn height(&self) -> i64 {
        let departures = if self.departures.is_empty() { 0 } else { 26 };
        self.legend.height() + BudgetPlot::HEIGHT + Bars::HEIGHT + departures + TimeAxis::HEIGHT
    }

    fn draw(&self, svg: &mut Svg, top: i64, colours: &LineColours<'_>) {
        let budgets = top + self.legend.height();
        let bars = budgets + BudgetPlot::HEIGHT;
        let departures = bars + Bars::HEIGHT;
        let bottom = top + self.height() - TimeAxis::HEIGHT;
        self.legend.draw(svg, top);
        self.budgets.draw_scale(svg, budgets);
        self.bars.draw_scale(svg, bars);
        for edge in &self.edges {
            let x = self.axis.x(*edge);
            let (from, to) = (BudgetPlot::plot_top(budgets), departures);
            svg.add(format_args!(
                "<path class=\"edge\" d=\"M{x} {from}V{to}\"/>"
            ));
        }
        self.budgets.draw(svg, budgets, self.axis, colours);
        self.bars.draw(svg, bars, self.axis);
        self.draw_departures(svg, departures);
        self.axis.draw(svg, bottom);
    }

    /// Draws a mark for each hit that leaves a leaky bucket.
    fn draw_departures(&self, svg: &mut Svg, top: i64) {
        if self.departures.is_empty() {
            return;
        }
        let label = (Tenths::px(LEFT - 8), Tenths::px(top + 22));
        svg.text(label, Anchor::End, "", "leaves");
        let marks = self.departures.iter();
        let marks = marks.map(|at| format!("M{} {}v14", self.axis.x(*at), top + 10));
        let marks: String = marks.collect();
        svg.add(format_args!(
            "<path class=\"leaves ln allowed\" d=\"{marks}\"/>"
        ));
    }
}

/// Adds a horizontal line across the plots.
fn draw_line(svg: &mut Svg, class: &str, y: Tenths) {
    svg.add(format_args!(
        "<path class=\"{class}\" d=\"M{LEFT} {y}H{RIGHT}\"/>"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::{
        budget_line::{BudgetLine, BudgetPoint},
        hit_outcome::HitOutcome,
        replay::ReplayedHit,
        trace::TraceHit,
    };

    const TIME_SPAN: TimeSpan = TimeSpan {
        start_micros: 0,
        end_micros: 1_000_000,
    };

    fn budget(name: &str, limit: u64, points: &[(i64, u64)]) -> BudgetLine {
        let points = points.iter().map(|&(at_micros, remaining)| BudgetPoint {
            at_micros,
            remaining,
        });
        BudgetLine {
            name: name.to_owned(),
            limit,
            points: points.collect(),
        }
    }

    fn policy(text: &str) -> Policy {
        Policy::parse("p", text).unwrap()
    }

    fn run<'a>(title: &'a str, policy: &'a Policy, budgets: Vec<BudgetLine>) -> ChartRun<'a> {
        let hits = [
            (0, HitOutcome::Allowed, 0),
            (500_000, HitOutcome::Delayed, 250_000),
            (500_000, HitOutcome::Denied, 1),
            (999_999, HitOutcome::Denied, 1),
        ];
        let trace = hits.map(|(at_micros, ..)| TraceHit::at(at_micros));
        let hits = hits.map(|(at_micros, outcome, wait_micros)| ReplayedHit {
            at_micros,
            cost: 1,
            outcome,
            wait_micros,
        });
        let replay = Replay {
            hits: hits.to_vec(),
            budgets,
        };
        ChartRun {
            title,
            policy,
            summary: Summary::new(&trace, &replay),
            replay,
        }
    }

    #[test]
    fn every_run_has_a_panel_with_its_counts() {
        let policy = policy("5/s");

        let svg = draw(
            TIME_SPAN,
            &[
                run("a <b>", &policy, vec![]),
                run("second", &policy, vec![]),
            ],
        );

        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("<title id=\"t\">a &lt;b&gt; and second</title>"));
        assert_eq!(svg.matches(">1 allowed</text>").count(), 2);
        assert_eq!(svg.matches(">2 denied</text>").count(), 2);
        assert!(svg.contains(">0 s</text>") && svg.contains(">1 s</text>"));
    }

    #[test]
    fn hits_are_stacked_in_bins() {
        let policy = policy("5/s");

        let svg = draw(TIME_SPAN, &[run("p", &policy, vec![])]);

        assert_eq!(svg.matches("<g class=\"bin\">").count(), 3);
        let stack = "<title>0.5 s: 1 delayed, 1 denied</title><rect class=\"fill delayed\"";
        assert!(svg.contains(stack), "{svg}");
    }

    #[test]
    fn a_budget_is_a_line_of_steps_to_its_end() {
        let policy = policy("5/s");
        let spent = budget("k", 2, &[(0, 2), (0, 0), (500_000, 1), (1_000_000, 1)]);

        let svg = draw(TIME_SPAN, &[run("p", &policy, vec![spent])]);

        assert!(svg.contains("d=\"M64 68H64V178H402V123H740\""), "{svg}");
    }

    #[test]
    fn edges_and_departures_are_drawn_where_there_are_some() {
        let windows = policy("fixed_window 5/250ms");
        let queue = policy("leaky_bucket 5/s queue 9");

        let edges = draw(TIME_SPAN, &[run("p", &windows, vec![])]);
        let leaves = draw(TIME_SPAN, &[run("p", &queue, vec![])]);

        assert_eq!(edges.matches("class=\"edge\"").count(), 3);
        assert!(!edges.contains(">leaves<") && leaves.contains(">leaves<"));
        assert_eq!(leaves.matches("class=\"edge\"").count(), 0);
        assert!(leaves.contains("v14M571 "), "0.75 s: {leaves}");
    }

    #[test]
    fn several_budgets_are_named_and_drawn_to_their_own_height() {
        let policy = policy("5/s");
        let budgets = vec![budget("one", 2, &[(0, 2)]), budget("other", 50, &[(0, 50)])];

        let svg = draw(TIME_SPAN, &[run("p", &policy, budgets)]);

        assert!(
            svg.contains(">one</text>") && svg.contains(">other</text>"),
            "{svg}"
        );
        assert!(
            svg.contains(">100 %</text>") && svg.contains(">0 %</text>"),
            "{svg}"
        );
    }

    #[test]
    fn nothing_and_one_moment_can_be_drawn() {
        let policy = policy("5/s");
        let time_span = TimeSpan {
            start_micros: 7,
            end_micros: 7,
        };
        let nothing = ChartRun {
            title: "none",
            policy: &policy,
            replay: Replay::default(),
            summary: Summary::new(&[], &Replay::default()),
        };
        let alone = run("one", &policy, vec![budget("k", 0, &[(7, 0)])]);

        assert!(draw(time_span, &[nothing]).contains("none"));
        assert!(draw(time_span, &[alone]).contains("one"));
    }
}

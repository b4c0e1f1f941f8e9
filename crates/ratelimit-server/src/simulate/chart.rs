//! The SVG chart of a replay.

use std::fmt::Write as _;

use super::{
    decimal,
    frames::{BudgetLine, TimeSpan},
    replay::Replay,
    report::{ChartHit, Fate},
};

const WIDTH: u64 = 900;
const LEFT: u64 = 70;
const RIGHT: u64 = 50;
const PANEL: u64 = 230;
const TOP: u64 = 46;
const LEGEND_ROW: u64 = 14;
/// Approximate width of a character.
const CHARACTER: u64 = 7;
/// The most ticks of the time axis, beside the first.
const MAX_TICKS: u64 = 6;
const PLOT: u64 = 110;
const ROWS: [(Fate, &str, &str); 3] = [
    (Fate::Admitted, "admitted", "#2a7f3f"),
    (Fate::Delayed, "delayed", "#c77d0a"),
    (Fate::Denied, "denied", "#b3261e"),
];
const ROW: u64 = 14;
const LINES: [&str; 6] = [
    "#1f6feb", "#8250df", "#bf3989", "#1b7c83", "#6e7781", "#953800",
];

/// Draws one panel per run: the budgets over time, and the outcome of every hit below.
pub(super) fn draw(time_span: TimeSpan, runs: &[(&str, Replay)]) -> String {
    let legends: Vec<Vec<String>> = runs.iter().map(|(_, run)| legend(&run.budgets)).collect();
    let rows: usize = legends.iter().map(Vec::len).sum();
    let height = PANEL * runs.len() as u64 + LEGEND_ROW * rows as u64 + 30;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    let mut y = 0;
    for ((title, run), legend) in runs.iter().zip(&legends) {
        let room = LEGEND_ROW * legend.len() as u64;
        let panel = Panel {
            top: y + TOP + room,
            first: time_span.start_micros,
            span: (time_span.end_micros - time_span.start_micros).max(1),
        };
        panel.draw(&mut svg, title, legend, run);
        y += PANEL + room;
    }
    svg.push_str("</svg>\n");
    svg
}

struct Panel {
    top: u64,
    first: u64,
    span: u64,
}

impl Panel {
    fn draw(&self, svg: &mut String, title: &str, legend: &[String], run: &Replay) {
        let heading = self.top - 14 - LEGEND_ROW * legend.len() as u64;
        line(
            svg,
            format_args!(
                "<text x=\"{LEFT}\" y=\"{heading}\" font-weight=\"bold\">{}</text>",
                escaped(title),
            ),
        );
        for (row, names) in (1_u64..).zip(legend) {
            let y = heading + row * LEGEND_ROW;
            line(
                svg,
                format_args!("<text x=\"{LEFT}\" y=\"{y}\">{names}</text>"),
            );
        }
        self.frame(svg);
        self.scale(svg, &run.budgets);
        for (budget, colour) in run.budgets.iter().zip(LINES) {
            self.budget(svg, budget, colour);
        }
        for (row, fate) in (0_u64..).zip(ROWS) {
            self.row(svg, self.top + PLOT + 18 + row * ROW, fate, &run.hits);
        }
    }

    /// Draws the hits of one outcome and their count.
    fn row(&self, svg: &mut String, y: u64, row: (Fate, &str, &str), hits: &[ChartHit]) {
        let (fate, name, colour) = row;
        let of_fate = hits.iter().filter(|hit| hit.fate == fate);
        let count = of_fate.clone().count();
        line(
            svg,
            format_args!(
                "<text x=\"4\" y=\"{0}\" fill=\"{colour}\">{name}</text>\
                 <text x=\"{1}\" y=\"{0}\" text-anchor=\"end\" fill=\"{colour}\">{count}</text>",
                y + 4,
                WIDTH - 6,
            ),
        );
        let mut marks = String::new();
        let mut drawn = None;
        for x in of_fate.map(|hit| self.x(hit.at_micros)) {
            // A second mark at the same position would only enlarge the file.
            if drawn.replace(x) != Some(x) {
                let _ = write!(marks, "M{} {}v8", tenths(x), y - 4);
            }
        }
        line(
            svg,
            format_args!("<path d=\"{marks}\" stroke=\"{colour}\" fill=\"none\"/>"),
        );
    }

    fn frame(&self, svg: &mut String) {
        let (top, bottom) = (self.top, self.top + PLOT);
        let wide = WIDTH - LEFT - RIGHT;
        line(
            svg,
            format_args!(
                "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{wide}\" height=\"{PLOT}\" fill=\"#f6f8fa\" stroke=\"#c9d1d9\"/>",
            ),
        );
        let step = tick_step(self.span);
        let first = self.first.div_ceil(step.0);
        let last = (self.first + self.span) / step.0;
        for at in (first..=last).map(|tick| tick * step.0) {
            let x = tenths(self.x(at));
            line(
                svg,
                format_args!(
                    "<path d=\"M{x} {bottom}v4\" stroke=\"#57606a\"/>\
                     <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" fill=\"#57606a\">{}</text>",
                    bottom + 18 + 4 * ROW,
                    step.label(at),
                ),
            );
        }
    }

    /// Labels the vertical axis. If capacities differ, each budget is scaled to its own capacity.
    fn scale(&self, svg: &mut String, budgets: &[BudgetLine]) {
        let first = budgets.first().map_or(0, |budget| budget.limit);
        let alike = budgets.iter().all(|budget| budget.limit == first);
        let (whole, nothing) = if alike {
            (first.to_string(), "0")
        } else {
            ("full".to_owned(), "empty")
        };
        for (label, y) in [(&*whole, self.top), (nothing, self.top + PLOT)] {
            line(
                svg,
                format_args!(
                    "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{label}</text>",
                    LEFT - 6,
                    y + 4,
                ),
            );
        }
    }

    /// Draws the remaining budget as steps.
    fn budget(&self, svg: &mut String, budget: &BudgetLine, colour: &str) {
        let most = budget.limit.max(1);
        let mut path = String::new();
        let mut height = None;
        for point in &budget.points {
            let spent = u128::from(most - point.remaining.min(most)) * u128::from(PLOT * 10);
            let y = self.top * 10 + u64::try_from(spent / u128::from(most)).unwrap_or(0);
            let x = tenths(self.x(point.at_micros));
            match height.replace(y) {
                None => path = format!("M{x} {}", tenths(y)),
                Some(before) if before == y => {}
                Some(_) => {
                    let _ = write!(path, "H{x}V{}", tenths(y));
                }
            }
        }
        if let Some(last) = budget.points.last() {
            let _ = write!(path, "H{}", tenths(self.x(last.at_micros)));
        }
        line(
            svg,
            format_args!(
                "<path class=\"budget\" d=\"{path}\" stroke=\"{colour}\" stroke-width=\"1.5\" fill=\"none\"/>",
            ),
        );
    }

    /// The horizontal position of a time, in tenths of a pixel.
    fn x(&self, at_micros: u64) -> u64 {
        let wide = u128::from((WIDTH - LEFT - RIGHT) * 10);
        let along = u128::from(at_micros.saturating_sub(self.first)) * wide / u128::from(self.span);
        LEFT * 10 + u64::try_from(along).unwrap_or(0)
    }
}

/// Names the lines by their colours, in rows. One line needs no name.
fn legend(budgets: &[BudgetLine]) -> Vec<String> {
    let mut rows: Vec<(u64, String)> = Vec::new();
    if budgets.len() < 2 {
        return Vec::new();
    }
    for (budget, colour) in budgets.iter().zip(LINES) {
        let name = escaped(&budget.name);
        let wide = 12 + CHARACTER * budget.name.chars().count() as u64;
        let name = format!("<tspan dx=\"12\" fill=\"{colour}\">{name}</tspan>");
        match rows.last_mut() {
            Some((used, row)) if *used + wide <= WIDTH - LEFT - RIGHT => {
                *used += wide;
                row.push_str(&name);
            }
            _ => rows.push((wide, name)),
        }
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The distance of ticks in microseconds: a round number of seconds, minutes, hours or days.
#[derive(Clone, Copy)]
struct TickStep(u64);

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

impl TickStep {
    /// The text of a tick.
    fn label(self, at: u64) -> String {
        let TickStep(step) = self;
        let units = [(DAY, "d"), (HOUR, "h"), (MINUTE, "min")];
        match units.into_iter().find(|unit| step.is_multiple_of(unit.0)) {
            Some((unit, name)) => format!("{}{name}", at / unit),
            None => format!("{}s", decimal::seconds(at)),
        }
    }
}

/// The smallest round step with few enough ticks.
fn tick_step(span: u64) -> TickStep {
    let decimal = |unit: u64| [1, 2, 5].map(|digit| digit * unit);
    let seconds = (0..8).flat_map(|power| decimal(10_u64.pow(power)));
    let seconds = seconds.take_while(|step| *step < 60 * SECOND);
    let clock = [1, 2, 5, 10, 30].map(|minutes| minutes * MINUTE);
    let hours = [1, 2, 6, 12].map(|hours| hours * HOUR);
    let days = (0..8).flat_map(|power| decimal(10_u64.pow(power) * DAY));
    let mut steps = seconds.chain(clock).chain(hours).chain(days);
    let step = steps.find(|step| span / step <= MAX_TICKS);
    TickStep(step.unwrap_or(u64::MAX))
}

fn line(svg: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = writeln!(svg, "{what}");
}

fn tenths(value: u64) -> String {
    format!("{}.{}", value / 10, value % 10)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::frames::BudgetPoint;

    const TIME_SPAN: TimeSpan = TimeSpan {
        start_micros: 0,
        end_micros: 1_000_000,
    };

    fn hit(at_micros: u64, fate: Fate) -> ChartHit {
        ChartHit { at_micros, fate }
    }

    fn budget(name: &str, limit: u64, points: &[(u64, u64)]) -> BudgetLine {
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

    fn run(budgets: Vec<BudgetLine>) -> Replay {
        let hits = vec![
            hit(0, Fate::Admitted),
            hit(500_000, Fate::Delayed),
            hit(1_000_000, Fate::Denied),
        ];
        Replay { hits, budgets }
    }

    #[test]
    fn every_run_has_a_panel_with_its_counts() {
        let svg = draw(
            TIME_SPAN,
            &[("a <b>", run(vec![])), ("second", run(vec![]))],
        );

        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("admitted</text>").count(), 2);
        assert!(svg.contains("a &lt;b&gt;") && svg.contains(">1s</text>"));
    }

    #[test]
    fn a_budget_is_a_line_of_steps_to_its_end() {
        let spent = budget("k", 2, &[(0, 2), (0, 0), (500_000, 1), (1_000_000, 1)]);

        let svg = draw(TIME_SPAN, &[("p", run(vec![spent]))]);

        let path = "M70.0 46.0H70.0V156.0H460.0V101.0H850.0";
        assert!(svg.contains(path), "{svg}");
        assert!(!svg.contains("<tspan"));
    }

    #[test]
    fn several_budgets_are_named_and_drawn_to_their_own_height() {
        let budgets = vec![budget("one", 2, &[(0, 2)]), budget("other", 50, &[(0, 50)])];

        let svg = draw(TIME_SPAN, &[("p", run(budgets))]);

        assert_eq!(svg.matches("d=\"M70.0 60.0H70.0\"").count(), 2, "{svg}");
        assert!(svg.contains(">one</tspan>") && svg.contains(">other</tspan>"));
        assert!(svg.contains(">full</text>") && svg.contains(">empty</text>"));
    }

    #[test]
    fn ticks_are_round_and_few() {
        let labels = |span: u64| {
            let step = tick_step(span);
            let ticks = (0..=span / step.0).map(|tick| step.label(tick * step.0));
            ticks.collect::<Vec<_>>().join(" ")
        };

        assert_eq!(labels(1_234_567), "0s 0.2s 0.4s 0.6s 0.8s 1s 1.2s");
        assert_eq!(labels(45 * SECOND), "0s 10s 20s 30s 40s");
        assert_eq!(labels(7 * MINUTE), "0min 2min 4min 6min");
        assert_eq!(labels(26 * HOUR), "0h 6h 12h 18h 24h");
        assert_eq!(labels(9 * DAY), "0d 2d 4d 6d 8d");
        assert_eq!(tick_step(1).0, 1);
    }

    #[test]
    fn long_names_of_lines_have_rows_of_their_own_below_the_title() {
        let long = "n".repeat(60);
        let budgets = vec![budget(&long, 2, &[(0, 2)]), budget(&long, 2, &[(0, 2)])];

        let svg = draw(TIME_SPAN, &[("title", run(budgets))]);

        for text in [
            "y=\"32\" font-weight=\"bold\">title",
            "y=\"46\"><tspan",
            "y=\"60\"><tspan",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(svg.contains("<rect x=\"70\" y=\"74\""), "{svg}");
    }

    #[test]
    fn nothing_and_one_moment_can_be_drawn() {
        let time_span = TimeSpan {
            start_micros: 7,
            end_micros: 7,
        };
        let alone = Replay {
            hits: vec![hit(7, Fate::Denied)],
            budgets: vec![budget("k", 0, &[(7, 0)])],
        };

        assert!(draw(time_span, &[("none", Replay::default())]).contains("none"));
        assert!(draw(time_span, &[("one", alone)]).contains("one"));
    }
}

//! Draws what a simulation found, as SVG.

use std::fmt::Write as _;

use crate::simulate::{Fate, Shown};

const WIDTH: u64 = 900;
const LEFT: u64 = 60;
const RIGHT: u64 = 20;
const PANEL: u64 = 230;
const TOP: u64 = 46;
const PLOT: u64 = 110;
const ROWS: [(Fate, &str, &str); 3] = [
    (Fate::Admitted, "admitted", "#2a7f3f"),
    (Fate::Delayed, "delayed", "#c77d0a"),
    (Fate::Denied, "denied", "#b3261e"),
];
const ROW: u64 = 14;

/// One panel for each run: the budget over time, and below it what became of every hit.
pub(crate) fn draw(runs: &[(&str, Vec<Shown>)]) -> String {
    let hits = || runs.iter().flat_map(|run| &run.1);
    let first = hits().map(|hit| hit.at_micros).min().unwrap_or(0);
    let last = hits().map(|hit| hit.at_micros).max().unwrap_or(0);
    let height = PANEL * runs.len() as u64 + 30;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    for (place, (title, hits)) in runs.iter().enumerate() {
        let panel = Panel {
            top: PANEL * place as u64 + TOP,
            first,
            span: (last - first).max(1),
            most: hits.iter().map(|hit| hit.limit).max().unwrap_or(1).max(1),
        };
        panel.draw(&mut svg, title, hits);
    }
    svg.push_str("</svg>\n");
    svg
}

struct Panel {
    top: u64,
    first: u64,
    span: u64,
    most: u64,
}

impl Panel {
    fn draw(&self, svg: &mut String, title: &str, hits: &[Shown]) {
        self.frame(svg, title);
        self.budget(svg, hits);
        for (row, (fate, name, colour)) in (0_u64..).zip(ROWS) {
            let y = self.top + PLOT + 18 + row * ROW;
            let of_fate = hits.iter().filter(|hit| hit.fate == fate);
            let count = of_fate.clone().count();
            line(
                svg,
                format_args!(
                    "<text x=\"4\" y=\"{}\" fill=\"{colour}\">{name}</text>\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"{colour}\">{count}</text>",
                    y + 4,
                    WIDTH - RIGHT + 16,
                    y - 5,
                ),
            );
            let mut marks = String::new();
            let mut drawn = None;
            for x in of_fate.map(|hit| self.x(hit.at_micros)) {
                // Marks at the same place would only make the file large.
                if drawn.replace(x) != Some(x) {
                    let _ = write!(marks, "M{} {}v8", tenths(x), y - 4);
                }
            }
            line(
                svg,
                format_args!("<path d=\"{marks}\" stroke=\"{colour}\" fill=\"none\"/>"),
            );
        }
    }

    fn frame(&self, svg: &mut String, title: &str) {
        let (top, bottom) = (self.top, self.top + PLOT);
        let wide = WIDTH - LEFT - RIGHT;
        line(
            svg,
            format_args!(
                "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{}</text>",
                top - 14,
                escaped(title),
            ),
        );
        line(
            svg,
            format_args!(
                "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{wide}\" height=\"{PLOT}\" fill=\"#f6f8fa\" stroke=\"#c9d1d9\"/>",
            ),
        );
        for (label, y) in [(self.most, top), (0, bottom)] {
            line(
                svg,
                format_args!(
                    "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{label}</text>",
                    LEFT - 6,
                    y + 4,
                ),
            );
        }
        for part in 0..=4 {
            let at = self.first + self.span / 4 * part;
            line(
                svg,
                format_args!(
                    "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#57606a\">{}.{:03}s</text>",
                    LEFT + wide * part / 4,
                    bottom + 18 + 4 * ROW,
                    at / 1_000_000,
                    at / 1_000 % 1_000,
                ),
            );
        }
    }

    /// What remains after each hit; between hits the line stays, as nothing was seen there.
    fn budget(&self, svg: &mut String, hits: &[Shown]) {
        let mut path = String::new();
        let mut before = None;
        for hit in hits {
            let y =
                self.top * 10 + (self.most - hit.remaining.min(self.most)) * PLOT * 10 / self.most;
            let (x, y) = (tenths(self.x(hit.at_micros)), tenths(y));
            let step = match before {
                None => format!("M{x} {y}"),
                Some(_) => format!("H{x}V{y}"),
            };
            if before.as_ref() != Some(&(x.clone(), y.clone())) {
                path.push_str(&step);
            }
            before = Some((x, y));
        }
        line(
            svg,
            format_args!(
                "<path d=\"{path}\" stroke=\"#1f6feb\" stroke-width=\"1.5\" fill=\"none\"/>",
            ),
        );
    }

    /// Where a moment stands, in tenths.
    fn x(&self, at_micros: u64) -> u64 {
        let wide = u128::from((WIDTH - LEFT - RIGHT) * 10);
        let along = u128::from(at_micros - self.first) * wide / u128::from(self.span);
        LEFT * 10 + u64::try_from(along).unwrap_or(0)
    }
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

    #[test]
    fn every_run_has_a_panel_with_its_counts() {
        let hit = |at_micros, fate, remaining| Shown {
            at_micros,
            fate,
            limit: 2,
            remaining,
        };
        let run = vec![
            hit(0, Fate::Admitted, 1),
            hit(500_000, Fate::Delayed, 0),
            hit(1_000_000, Fate::Denied, 0),
        ];

        let svg = draw(&[("a <b>", run.clone()), ("second", run)]);

        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("admitted</text>").count(), 2);
        assert!(svg.contains("a &lt;b&gt;") && svg.contains(">1.000s</text>"));
    }

    #[test]
    fn nothing_and_one_moment_can_be_drawn() {
        let alone = Shown {
            at_micros: 7,
            fate: Fate::Denied,
            limit: 0,
            remaining: 0,
        };

        assert!(draw(&[("none", Vec::new())]).contains("none"));
        assert!(draw(&[("one", vec![alone])]).contains("one"));
    }
}

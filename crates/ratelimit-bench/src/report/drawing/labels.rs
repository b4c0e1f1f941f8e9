//! The names and last values of lines, at their right ends.

use super::{BOTTOM, RIGHT, TOP, ValueAxis, axis::shortened, colour, px};
use crate::{
    report::Chart,
    svg::{Anchor, Svg, WIDTH, text_width},
};

const ROW: f64 = 15.0;

/// Distance of the texts from the lines.
const GAP: i64 = 10;

/// The labels of a chart, none over another.
pub(super) struct EndLabels(Vec<EndLabel>);

struct EndLabel {
    class: &'static str,
    /// The rows of the name; none for the only line of a chart.
    name: Vec<String>,
    value: String,
    top: f64,
}

impl EndLabel {
    fn height(&self) -> f64 {
        let rows = u32::try_from(self.name.len() + 1).unwrap_or(1);
        ROW * f64::from(rows) + 4.0
    }
}

impl EndLabels {
    pub(super) fn of(chart: &Chart, values: &ValueAxis) -> EndLabels {
        let is_alone = chart.series.len() == 1;
        let ends = chart.series.iter().filter_map(|series| {
            let (_, last) = series.points.last()?;
            let name = if is_alone {
                Vec::new()
            } else {
                wrapped(&series.name)
            };
            let label = EndLabel {
                class: colour(&series.name),
                name,
                value: shortened(last.median),
                top: 0.0,
            };
            let top = values.y(last.median) - label.height() / 2.0;
            Some(EndLabel { top, ..label })
        });
        let mut labels: Vec<EndLabel> = ends.collect();
        labels.sort_by(|one, other| one.top.total_cmp(&other.top));
        let mut free = TOP - ROW;
        for label in &mut labels {
            label.top = label.top.max(free);
            free = label.top + label.height();
        }
        let mut floor = BOTTOM + ROW;
        for label in labels.iter_mut().rev() {
            label.top = label.top.min(floor - label.height());
            floor = label.top;
        }
        EndLabels(labels)
    }

    pub(super) fn draw(&self, svg: &mut Svg) {
        let x = RIGHT + 10.0;
        for label in &self.0 {
            let mut y = label.top;
            for row in &label.name {
                y += ROW;
                let class = format!("n {}", label.class);
                svg.text((px(x), px(y)), Anchor::Start, &class, row);
            }
            y += ROW;
            svg.text((px(x), px(y)), Anchor::Start, "", &label.value);
        }
    }
}

/// A name in rows that fit beside the plot.
fn wrapped(name: &str) -> Vec<String> {
    let room = WIDTH - 590 - 2 * GAP;
    let mut rows: Vec<String> = Vec::new();
    for word in name.split(' ') {
        match rows.last_mut() {
            Some(row) if text_width(row) + text_width(word) + 8 <= room => {
                row.push(' ');
                row.push_str(word);
            }
            _ => rows.push(word.to_owned()),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Scale, Series};

    #[test]
    fn labels_of_lines_that_end_together_stand_apart() {
        for end in [0.0, 100.0] {
            let names = ["a", "b", "c", "d"];
            let lines = names.map(|name| Series::new(name, vec![(1.0, 100.0), (2.0, end)]));
            let chart = Chart {
                name: "tasks".into(),
                title: String::new(),
                x: "".into(),
                y: "".into(),
                scale: Scale::Linear,
                series: lines.to_vec(),
            };

            let labels = EndLabels::of(&chart, &ValueAxis::of(&chart)).0;

            for pair in labels.windows(2) {
                assert!(pair[0].top + pair[0].height() <= pair[1].top + 0.01);
            }
            let last = labels.last().unwrap();
            assert!(last.top + last.height() <= BOTTOM + ROW + 0.01);
            assert!(labels[0].top >= TOP - ROW);
        }
    }

    #[test]
    fn a_long_name_has_several_rows() {
        assert_eq!(
            wrapped("plain multiplexed connection"),
            ["plain multiplexed", "connection"]
        );
    }
}

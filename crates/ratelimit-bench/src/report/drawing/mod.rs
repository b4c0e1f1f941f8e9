//! Charts as SVG, in the style of the simulator's charts.

mod axis;
mod labels;

use std::fmt::Write as _;

use self::{
    axis::{ColumnAxis, ValueAxis},
    labels::EndLabels,
};
use super::{Chart, Circumstances, Series, Spread, table::number};
use crate::svg::{Anchor, Svg, Tenths};

const HEIGHT: i64 = 340;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 590.0;
const TOP: f64 = 66.0;
const BOTTOM: f64 = 290.0;

/// The colour of each name, which is the same in every chart.
const COLOURS: [(&str, &str); 11] = [
    ("this limiter", "a"),
    ("plain multiplexed connection", "b"),
    ("bb8 with the naive script", "c"),
    ("governor", "d"),
    ("memory", "a"),
    ("Redis", "g"),
    ("the busiest shard", "a"),
    ("all shards together", "e"),
    ("p50", "h"),
    ("p99", "a"),
    ("p99.9", "d"),
];

/// Draws a chart. The circumstances of its run stand below the title.
pub(super) fn draw(chart: &Chart, circumstances: &Circumstances) -> String {
    let columns = ColumnAxis::of(chart);
    let values = ValueAxis::of(chart);
    let mut svg = Svg::new(HEIGHT, &chart.title, &described(chart));
    let at = (Tenths::px(16), Tenths::px(26));
    svg.text(at, Anchor::Start, "t", &chart.title);
    let below = subtitle(chart, circumstances);
    let at = (Tenths::px(16), Tenths::px(44));
    svg.text(at, Anchor::Start, "", &below);
    values.draw(&mut svg);
    columns.draw(&mut svg, &chart.x);
    for series in &chart.series {
        draw_range(&mut svg, series, &columns, &values);
    }
    for series in &chart.series {
        draw_line(&mut svg, series, &columns, &values);
    }
    EndLabels::of(chart, &values).draw(&mut svg);
    svg.finish()
}

/// The class of the colour of a name. A name that is not listed is grey.
fn colour(name: &str) -> &'static str {
    let found = COLOURS.iter().find(|(known, _)| *known == name);
    found.map_or("f", |(_, class)| class)
}

fn has_range(spread: Spread) -> bool {
    spread.low < spread.high
}

fn subtitle(chart: &Chart, circumstances: &Circumstances) -> String {
    let mut points = chart.series.iter().flat_map(|series| &series.points);
    let range = if points.any(|(_, spread)| has_range(*spread)) {
        "median, and the range from the least to the most · "
    } else {
        ""
    };
    let Circumstances { cores, redis, .. } = circumstances;
    format!("{} · {range}{cores} processors · Redis {redis}", chart.y)
}

/// Every number of a chart as a text.
fn described(chart: &Chart) -> String {
    let series = chart.series.iter().map(|series| {
        let points = series.points.iter().map(|(x, spread)| {
            let (x, y) = (number(*x), number(spread.median));
            format!("{y} at {x}")
        });
        let points: Vec<String> = points.collect();
        format!("{}: {}.", series.name, points.join(", "))
    });
    let series: Vec<String> = series.collect();
    format!("{} by {}. {}", chart.y, chart.x, series.join(" "))
}

/// Draws the range of a line: a band if every point has one, else a bar at each point that has.
fn draw_range(svg: &mut Svg, series: &Series, columns: &ColumnAxis, values: &ValueAxis) {
    let class = colour(&series.name);
    let points = || series.points.iter();
    if series.points.len() > 1 && points().all(|(_, spread)| has_range(*spread)) {
        let upper = points().map(|(x, spread)| (columns.x(*x), values.y(spread.high)));
        let lower = points().map(|(x, spread)| (columns.x(*x), values.y(spread.low)));
        let path = path(upper.chain(lower.rev()));
        svg.add(format_args!("<path class=\"band {class}\" d=\"{path}Z\"/>"));
        return;
    }
    for (x, spread) in points().filter(|(_, spread)| has_range(*spread)) {
        let (x, low, high) = (columns.x(*x), values.y(spread.low), values.y(spread.high));
        let (x, low, high) = (px(x), px(low), px(high));
        svg.add(format_args!(
            "<path class=\"range ln {class}\" d=\"M{x} {low}V{high}\"/>"
        ));
    }
}

fn draw_line(svg: &mut Svg, series: &Series, columns: &ColumnAxis, values: &ValueAxis) {
    let class = colour(&series.name);
    let points = series.points.iter();
    let points = points.map(|(x, spread)| (columns.x(*x), values.y(spread.median)));
    let path = path(points.clone());
    svg.add(format_args!(
        "<path class=\"series ln {class}\" d=\"{path}\"/>"
    ));
    for (x, y) in points {
        let (x, y) = (px(x), px(y));
        svg.add(format_args!(
            "<circle class=\"fill {class}\" cx=\"{x}\" cy=\"{y}\" r=\"3\"/>"
        ));
    }
}

fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (place, (x, y)) in points.enumerate() {
        let command = if place == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{command}{} {}", px(x), px(y));
    }
    path
}

/// A position in pixels.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a drawing has a few hundred pixels"
)]
fn px(pixels: f64) -> Tenths {
    Tenths((pixels * 10.0).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Scale;

    fn circumstances() -> Circumstances {
        Circumstances {
            cores: 2,
            redis: "7.0.15".to_owned(),
            command: "cargo xtask bench".to_owned(),
        }
    }

    fn chart(scale: Scale, series: Vec<Series>) -> Chart {
        Chart {
            name: "tasks".into(),
            title: "checks < a second".to_owned(),
            x: "tasks".into(),
            y: "checks/s".into(),
            scale,
            series,
        }
    }

    fn line(points: &[(f64, f64)]) -> Series {
        Series::new("this limiter", points.to_vec())
    }

    fn svg(chart: &Chart) -> String {
        draw(chart, &circumstances())
    }

    #[test]
    fn a_line_goes_from_the_left_edge_to_the_right_one() {
        let svg = svg(&chart(
            Scale::Linear,
            vec![line(&[(1.0, 50.0), (2.0, 100.0)])],
        ));

        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("d=\"M64 178L590 66\""), "{svg}");
        assert!(svg.contains(">checks &lt; a second</title>"));
        assert!(svg.contains(">checks/s · 2 processors · Redis 7.0.15</text>"));
        assert!(svg.contains("checks/s by tasks. this limiter: 50 at 1, 100 at 2.</desc>"));
    }

    #[test]
    fn powers_of_ten_lie_at_equal_heights() {
        let points = [(1.0, 1.0), (2.0, 10.0), (3.0, 100.0)];

        let svg = svg(&chart(Scale::Factors, vec![line(&points)]));

        assert!(svg.contains("M64 290L327 178L590 66"), "{svg}");
    }

    #[test]
    fn columns_that_are_multiplied_stand_at_equal_factors() {
        let points = [(1.0, 1.0), (16.0, 1.0), (64.0, 1.0), (256.0, 1.0)];

        let svg = svg(&chart(Scale::Linear, vec![line(&points)]));

        assert!(svg.contains("d=\"M64 66L327 66L458.5 66L590 66\""), "{svg}");
    }

    #[test]
    fn a_range_is_a_band_or_a_bar() {
        let spread = Spread::of(&[50.0, 75.0, 100.0]);
        let exact = Spread::exactly(50.0);
        let band = vec![(1.0, spread), (2.0, spread)];
        let bar = vec![(1.0, exact), (2.0, spread)];

        let band = svg(&chart(
            Scale::Linear,
            vec![Series::of_spreads("governor", band)],
        ));
        let bar = svg(&chart(
            Scale::Linear,
            vec![Series::of_spreads("governor", bar)],
        ));

        assert!(
            band.contains("class=\"band d\" d=\"M64 66L590 66L590 178L64 178Z\""),
            "{band}"
        );
        assert!(
            bar.contains("class=\"range ln d\" d=\"M590 178V66\""),
            "{bar}"
        );
        assert!(band.contains("from the least to the most"));
    }

    #[test]
    fn nothing_and_one_point_can_be_drawn() {
        for points in [&[][..], &[(1.0, 0.0)]] {
            for scale in [Scale::Linear, Scale::Factors] {
                assert!(!svg(&chart(scale, vec![line(points)])).contains("NaN"));
            }
        }
    }
}

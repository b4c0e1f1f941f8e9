//! How a number grows, drawn as SVG.

use std::fmt::Write as _;

use super::table::number;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 56.0;
const COLOURS: [&str; 6] = [
    "#1f6feb", "#b3261e", "#2a7f3f", "#8250df", "#c77d0a", "#6e7781",
];

/// Lines over one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The name of its file.
    pub name: &'static str,
    /// The title.
    pub title: String,
    /// The label of the horizontal axis.
    pub x: &'static str,
    /// The label of the vertical axis.
    pub y: &'static str,
    /// How what is measured is drawn.
    pub scale: Scale,
    /// One line each.
    pub series: Vec<Series>,
}

/// How heights are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// In proportion, from nothing.
    Linear,
    /// Each ten times the same height.
    Powers,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Whose it is.
    pub name: String,
    /// Where it goes, from left to right.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// A line of that name.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        let name = name.into();
        Series { name, points }
    }
}

impl Chart {
    /// The chart as SVG.
    pub fn svg(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        );
        let frame = Frame::around(self);
        self.words(&mut svg);
        frame.columns(&mut svg);
        frame.heights(&mut svg);
        for (series, colour) in self.series.iter().zip(COLOURS) {
            frame.line(&mut svg, series, colour);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn words(&self, svg: &mut String) {
        text(
            svg,
            (LEFT, 22.0),
            "start",
            "font-weight=\"bold\"",
            &self.title,
        );
        let below = (f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 12.0);
        text(svg, below, "middle", "fill=\"#57606a\"", self.x);
        text(svg, (LEFT, TOP - 8.0), "end", "fill=\"#57606a\"", self.y);
        let mut x = LEFT + 16.0;
        for (series, colour) in self.series.iter().zip(COLOURS) {
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.0}\" y=\"34\" width=\"10\" height=\"10\" fill=\"{colour}\"/>"
            );
            text(svg, (x + 14.0, 43.0), "start", "", &series.name);
            x += 30.0 + 6.6 * f64::from(u32::try_from(series.name.len()).unwrap_or(0));
        }
    }
}

/// The ranges of the axes.
struct Frame {
    columns: Vec<f64>,
    scale: Scale,
    low: f64,
    high: f64,
}

impl Frame {
    fn around(chart: &Chart) -> Frame {
        let points = || chart.series.iter().flat_map(|series| &series.points);
        let mut columns: Vec<f64> = points().map(|(x, _)| *x).collect();
        columns.sort_by(f64::total_cmp);
        columns.dedup();
        let high = points().map(|(_, y)| *y).fold(f64::MIN_POSITIVE, f64::max);
        let low = points().map(|(_, y)| *y).fold(high, f64::min);
        let (low, high) = match chart.scale {
            Scale::Linear => (0.0, round_up(high)),
            Scale::Powers => {
                let low = 10_f64.powf(low.max(f64::MIN_POSITIVE).log10().floor());
                (low, 10_f64.powf(high.log10().ceil()).max(low * 10.0))
            }
        };
        Frame {
            columns,
            scale: chart.scale,
            low,
            high,
        }
    }

    /// Columns stand at equal distances, for what grows is doubled or multiplied.
    fn x(&self, value: f64) -> f64 {
        let place = self.columns.iter().position(|column| *column >= value);
        let place = u32::try_from(place.unwrap_or(0)).unwrap_or(0);
        let last = u32::try_from(self.columns.len().saturating_sub(1)).unwrap_or(0);
        LEFT + (WIDTH - LEFT - RIGHT) * f64::from(place) / f64::from(last.max(1))
    }

    fn y(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => value / self.high,
            Scale::Powers => (value / self.low).log10() / (self.high / self.low).log10(),
        };
        let bottom = HEIGHT - BOTTOM;
        bottom - (bottom - TOP) * part.clamp(0.0, 1.0)
    }

    fn columns(&self, svg: &mut String) {
        for column in &self.columns {
            let below = (self.x(*column), HEIGHT - BOTTOM + 18.0);
            text(svg, below, "middle", "", &number(*column));
        }
    }

    fn heights(&self, svg: &mut String) {
        for height in self.marks() {
            let y = self.y(height);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{}\" stroke=\"#d0d7de\"/>",
                WIDTH - RIGHT
            );
            text(svg, (LEFT - 8.0, y + 4.0), "end", "", &number(height));
        }
    }

    fn marks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => (0..=4)
                .map(|part| self.high * f64::from(part) / 4.0)
                .collect(),
            Scale::Powers => {
                let next = |mark: &f64| Some(mark * 10.0);
                let marks = std::iter::successors(Some(self.low), next);
                marks.take_while(|mark| *mark <= self.high * 1.01).collect()
            }
        }
    }

    fn line(&self, svg: &mut String, series: &Series, colour: &str) {
        let mut path = String::new();
        for (place, (x, y)) in series.points.iter().enumerate() {
            let (x, y) = (self.x(*x), self.y(*y));
            let _ = write!(path, "{}{x:.1} {y:.1}", if place == 0 { 'M' } else { 'L' });
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
            );
        }
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" stroke=\"{colour}\" stroke-width=\"2\" fill=\"none\"/>"
        );
    }
}

/// The next number of one digit and zeros, or with a half.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let step = steps.into_iter().find(|step| step * power >= value);
    step.unwrap_or(10.0) * power
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, style: &str, words: &str) {
    let words = words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {style}>{words}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale, points: &[(f64, f64)]) -> Chart {
        Chart {
            name: "tasks",
            title: "checks < a second".to_owned(),
            x: "tasks",
            y: "checks/s",
            scale,
            series: vec![Series::new("ours", points.to_vec())],
        }
    }

    #[test]
    fn a_line_goes_from_the_left_edge_to_the_right_one() {
        let svg = chart(Scale::Linear, &[(1.0, 50.0), (16.0, 100.0)]).svg();

        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("d=\"M90.0 184.0L736.0 64.0\""), "{svg}");
        assert!(svg.contains("checks &lt; a second") && svg.contains(">ours</text>"));
    }

    #[test]
    fn powers_of_ten_lie_at_equal_heights() {
        let svg = chart(Scale::Powers, &[(1.0, 1.0), (2.0, 10.0), (3.0, 100.0)]).svg();

        assert!(svg.contains("M90.0 304.0L413.0 184.0L736.0 64.0"), "{svg}");
    }

    #[test]
    fn the_axis_ends_at_a_round_number() {
        assert_eq!(number(round_up(87.0)), "100");
        assert_eq!(number(round_up(123_456.0)), "150,000");
        assert_eq!(number(round_up(50.0)), "50");
    }

    #[test]
    fn nothing_and_one_point_can_be_drawn() {
        for points in [&[][..], &[(1.0, 0.0)]] {
            assert!(!chart(Scale::Linear, points).svg().contains("NaN"));
            assert!(!chart(Scale::Powers, points).svg().contains("NaN"));
        }
    }
}

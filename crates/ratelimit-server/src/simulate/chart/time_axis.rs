//! The time axis, with ticks at round times.

use super::{LEFT, RIGHT};
use crate::{
    simulate::{decimal, time_span::TimeSpan},
    svg::{Anchor, Svg, Tenths, WIDTH, round_step, text_width},
};

/// The most ticks beside the first.
const MAX_TICKS: u64 = 6;

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A trace that begins later than this has Unix times, and its ticks are times of day: 2001.
const UNIX_TIMES: i64 = 1_000_000_000 * 1_000_000;

/// The horizontal scale of a chart.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeAxis {
    pub(super) time_span: TimeSpan,
    step: TickStep,
}

impl TimeAxis {
    pub(super) const HEIGHT: i64 = 34;

    pub(super) fn new(time_span: TimeSpan) -> TimeAxis {
        TimeAxis {
            time_span,
            step: TickStep::for_span(time_span.length_micros()),
        }
    }

    /// The horizontal position of a time.
    pub(super) fn x(&self, at_micros: i64) -> Tenths {
        let along = at_micros.saturating_sub(self.time_span.start_micros).max(0);
        let along = i128::from(along) * i128::from((RIGHT - LEFT) * 10);
        let along = along / i128::from(self.time_span.length_micros());
        Tenths(LEFT * 10 + i64::try_from(along).unwrap_or(0))
    }

    /// Draws the ticks below `top`.
    pub(super) fn draw(&self, svg: &mut Svg, top: i64) {
        let mut free_from = Tenths(0);
        for at in self.ticks() {
            let x = self.x(at);
            let label = self.label(at);
            let half = Tenths::px(text_width(&label) / 2);
            // The last label ends at the edge of the drawing.
            let middle = Tenths(x.0.min((WIDTH - 2) * 10 - half.0));
            svg.add(format_args!(
                "<path class=\"axis tick\" d=\"M{x} {top}v5\"/>"
            ));
            if middle.0 - half.0 >= free_from.0 {
                let at = (middle, Tenths::px(top + 19));
                svg.text(at, Anchor::Middle, "", &label);
                free_from = Tenths(middle.0 + half.0);
            }
        }
    }

    /// The start of a bin, as a text with three digits at most.
    pub(super) fn bin_label(&self, place: i64, places: i64) -> String {
        let length = i128::from(self.time_span.length_micros());
        let along = length * i128::from(place) / i128::from(places);
        let at = self.time_span.start_micros + i64::try_from(along).unwrap_or(0);
        let at = at.max(0) / 1_000 * 1_000;
        self.label_by(at, TickStep(1_000))
    }

    fn ticks(&self) -> impl Iterator<Item = i64> {
        let TickStep(step) = self.step;
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        let TimeSpan {
            start_micros,
            end_micros,
        } = self.time_span;
        let first = start_micros.max(0).div_euclid(step);
        let last = end_micros.div_euclid(step);
        let ticks = (first..=last).map(move |tick| tick * step);
        ticks.filter(move |at| *at >= start_micros)
    }

    fn label(&self, at: i64) -> String {
        self.label_by(at, self.step)
    }

    fn label_by(&self, at: i64, step: TickStep) -> String {
        let at = at.unsigned_abs();
        if self.time_span.start_micros >= UNIX_TIMES {
            step.clock_label(at)
        } else {
            step.label(at)
        }
    }
}

/// The distance of ticks in microseconds: a round number of seconds, minutes, hours or days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TickStep(u64);

impl TickStep {
    /// The smallest round step with few enough ticks.
    fn for_span(span: u64) -> TickStep {
        let decimal = round_step(span, MAX_TICKS);
        if decimal < MINUTE {
            return TickStep(decimal);
        }
        let minutes = [1, 2, 5, 10, 30].map(|minutes| minutes * MINUTE);
        let hours = [1, 2, 6, 12].map(|hours| hours * HOUR);
        let mut steps = minutes.into_iter().chain(hours);
        let step = steps.find(|step| span / step <= MAX_TICKS);
        TickStep(step.unwrap_or_else(|| round_step(span / DAY, MAX_TICKS).saturating_mul(DAY)))
    }

    /// The text of a time: `0.5 s`, `10 min`.
    fn label(self, at: u64) -> String {
        let TickStep(step) = self;
        let units = [(DAY, "d"), (HOUR, "h"), (MINUTE, "min")];
        match units.into_iter().find(|unit| step.is_multiple_of(unit.0)) {
            Some((unit, name)) => format!("{} {name}", at / unit),
            None => format!("{} s", decimal::seconds(at)),
        }
    }

    /// The text of a Unix time in UTC: `14:55`, `14:55:02.5`, `16 Nov`.
    fn clock_label(self, at: u64) -> String {
        let TickStep(step) = self;
        if step.is_multiple_of(DAY) {
            let (day, month) = civil_date(at / DAY);
            return format!("{day} {month}");
        }
        let (hour, minute) = (at % DAY / HOUR, at % HOUR / MINUTE);
        if step.is_multiple_of(MINUTE) {
            return format!("{hour:02}:{minute:02}");
        }
        let second = decimal::seconds(at % MINUTE);
        let pad = if at % MINUTE < 10 * SECOND { "0" } else { "" };
        format!("{hour:02}:{minute:02}:{pad}{second}")
    }
}

/// The day and the month of a number of days since 1 January 1970.
fn civil_date(days: u64) -> (u64, &'static str) {
    const MONTHS: [&str; 12] = [
        "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb",
    ];
    // Eras of 400 years begin on 1 March, so that a leap day is the last day of its year.
    let days = days + 719_468;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    (day, MONTHS[usize::try_from(month).unwrap_or(0).min(11)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(start: u64, length: u64) -> TimeAxis {
        TimeAxis::new(TimeSpan {
            start_micros: i64::try_from(start).unwrap(),
            end_micros: i64::try_from(start + length).unwrap(),
        })
    }

    fn labels(start: u64, length: u64) -> String {
        let axis = axis(start, length);
        let labels = axis.ticks().map(|at| axis.label(at));
        labels.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(
            labels(0, 1_234_567),
            "0 s, 0.2 s, 0.4 s, 0.6 s, 0.8 s, 1 s, 1.2 s"
        );
        assert_eq!(labels(0, 45 * SECOND), "0 s, 10 s, 20 s, 30 s, 40 s");
        assert_eq!(labels(MINUTE, 7 * MINUTE), "2 min, 4 min, 6 min, 8 min");
        assert_eq!(labels(0, 26 * HOUR), "0 h, 6 h, 12 h, 18 h, 24 h");
        assert_eq!(labels(0, 9 * DAY), "0 d, 2 d, 4 d, 6 d, 8 d");
        assert_eq!(TickStep::for_span(1), TickStep(1));
        assert_eq!(labels(0, 90 * SECOND), "0 s, 20 s, 40 s, 60 s, 80 s");
    }

    #[test]
    fn unix_times_are_times_of_day() {
        let start = 1_794_840_902 * SECOND;

        assert_eq!(
            labels(start, 5 * SECOND),
            "14:55:02, 14:55:03, 14:55:04, 14:55:05, 14:55:06, 14:55:07"
        );
        assert_eq!(
            labels(start, 3 * HOUR),
            "15:00, 15:30, 16:00, 16:30, 17:00, 17:30"
        );
        assert_eq!(labels(start, 4 * DAY), "17 Nov, 18 Nov, 19 Nov, 20 Nov");
        assert_eq!(civil_date(11_016), (29, "Feb"));
        assert_eq!(civil_date(0), (1, "Jan"));
    }

    #[test]
    fn a_label_ends_inside_the_drawing() {
        let mut svg = Svg::new(40, "", "");
        axis(1_794_840_902 * SECOND, 6 * SECOND).draw(&mut svg, 0);

        assert!(svg.finish().contains("<text x=\"730\""));
    }
}

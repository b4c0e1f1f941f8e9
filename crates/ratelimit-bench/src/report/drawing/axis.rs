//! The axes of a chart, with ticks at round numbers.

use super::{BOTTOM, LEFT, RIGHT, TOP, px};
use crate::{
    report::{Chart, Scale, table::number},
    svg::{Anchor, Svg, round_step},
};

/// The most steps of a linear axis.
const MAX_STEPS: u64 = 5;

/// The horizontal axis, with a tick at each measurement.
pub(super) struct ColumnAxis {
    columns: Vec<f64>,
    scale: Scale,
}

impl ColumnAxis {
    pub(super) fn of(chart: &Chart) -> ColumnAxis {
        let points = chart.series.iter().flat_map(|series| &series.points);
        let mut columns: Vec<f64> = points.map(|(x, _)| *x).collect();
        columns.sort_by(f64::total_cmp);
        columns.dedup();
        // Steps that are factors are drawn as such.
        let is_factor = |pair: &[f64]| pair[0] > 0.0 && pair[1] / pair[0] >= 2.0;
        let are_factors = columns.len() > 2 && columns.windows(2).all(is_factor);
        ColumnAxis {
            columns,
            scale: if are_factors {
                Scale::Factors
            } else {
                Scale::Linear
            },
        }
    }

    pub(super) fn x(&self, value: f64) -> f64 {
        let (Some(first), Some(last)) = (self.columns.first(), self.columns.last()) else {
            return LEFT;
        };
        if first >= last {
            return LEFT;
        }
        let part = match self.scale {
            Scale::Linear => (value - first) / (last - first),
            Scale::Factors => (value / first).ln() / (last / first).ln(),
        };
        LEFT + (RIGHT - LEFT) * part
    }

    pub(super) fn draw(&self, svg: &mut Svg, name: &str) {
        for column in &self.columns {
            let x = self.x(*column);
            let (tick, bottom) = (px(x), px(BOTTOM));
            svg.add(format_args!(
                "<path class=\"axis tick\" d=\"M{tick} {bottom}v5\"/>"
            ));
            let at = (px(x), px(BOTTOM + 19.0));
            svg.text(at, Anchor::Middle, "", &number(*column));
        }
        let at = (px(f64::midpoint(LEFT, RIGHT)), px(BOTTOM + 38.0));
        svg.text(at, Anchor::Middle, "", name);
    }
}

/// The vertical axis.
pub(super) struct ValueAxis {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl ValueAxis {
    pub(super) fn of(chart: &Chart) -> ValueAxis {
        let points = || chart.series.iter().flat_map(|series| &series.points);
        let highs = points().map(|(_, spread)| spread.high);
        let high = highs.fold(f64::MIN_POSITIVE, f64::max);
        let lows = points().map(|(_, spread)| spread.low);
        let low = lows.fold(high, f64::min);
        match chart.scale {
            Scale::Linear => ValueAxis::linear(high),
            Scale::Factors => ValueAxis::factors(low, high),
        }
    }

    /// From 0 to the next tick above `high`.
    fn linear(high: f64) -> ValueAxis {
        let step = thousandths(round_step(in_thousandths(high), MAX_STEPS));
        let count = (high / step).ceil().max(1.0);
        let ticks = std::iter::successors(Some(0.0), |tick: &f64| Some(tick + 1.0));
        let ticks = ticks.take_while(|tick| *tick <= count);
        ValueAxis {
            scale: Scale::Linear,
            low: 0.0,
            high: step * count,
            ticks: ticks.map(|tick| tick * step).collect(),
        }
    }

    /// From one power of ten to another.
    fn factors(low: f64, high: f64) -> ValueAxis {
        let low = 10_f64.powf(low.max(0.001).log10().floor());
        let high = 10_f64.powf(high.max(0.001).log10().ceil()).max(low * 10.0);
        let ticks = std::iter::successors(Some(low), |tick| Some(tick * 10.0));
        ValueAxis {
            scale: Scale::Factors,
            low,
            high,
            ticks: ticks.take_while(|tick| *tick <= high * 1.01).collect(),
        }
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => value / self.high,
            Scale::Factors => (value / self.low).log10() / (self.high / self.low).log10(),
        };
        BOTTOM - (BOTTOM - TOP) * part.clamp(0.0, 1.0)
    }

    pub(super) fn draw(&self, svg: &mut Svg) {
        for tick in &self.ticks {
            let y = self.y(*tick);
            let is_axis = (y - BOTTOM).abs() < 0.5;
            let class = if is_axis { "axis" } else { "grid" };
            let (left, right, height) = (px(LEFT), px(RIGHT), px(y));
            svg.add(format_args!(
                "<path class=\"{class}\" d=\"M{left} {height}H{right}\"/>"
            ));
            let at = (px(LEFT - 8.0), px(y + 4.0));
            svg.text(at, Anchor::End, "", &shortened(*tick));
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "measurements are above 0 and far below 2^53"
)]
fn in_thousandths(value: f64) -> u64 {
    (value * 1_000.0).ceil() as u64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a step of an axis has one digit and zeros"
)]
fn thousandths(value: u64) -> f64 {
    value as f64 / 1_000.0
}

/// A number with a letter for thousands or millions: `150 k`.
pub(super) fn shortened(value: f64) -> String {
    match value {
        ..10_000.0 => number(value),
        10_000.0..1_000_000.0 => format!("{} k", number(value / 1_000.0)),
        _ => format!("{} M", number(value / 1_000_000.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: &ValueAxis) -> Vec<String> {
        axis.ticks.iter().map(|tick| shortened(*tick)).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(
            ticks(&ValueAxis::linear(201_910.0)),
            ["0", "50 k", "100 k", "150 k", "200 k", "250 k"]
        );
        assert_eq!(
            ticks(&ValueAxis::linear(16.5)),
            ["0", "5", "10", "15", "20"]
        );
        assert_eq!(
            ticks(&ValueAxis::linear(0.8)),
            ["0", "0.2", "0.4", "0.6", "0.8"]
        );
        assert_eq!(
            ticks(&ValueAxis::factors(0.4, 1_538.0)),
            ["0.1", "1", "10", "100", "1,000", "10 k"]
        );
    }

    #[test]
    fn short_numbers_keep_their_first_digits() {
        assert_eq!(shortened(9_999.0), "9,999");
        assert_eq!(shortened(139_960.5), "140 k");
        assert_eq!(shortened(6_508_850.0), "6.51 M");
    }
}

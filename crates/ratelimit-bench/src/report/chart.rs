//! Charts: how a number grows.

use std::borrow::Cow;

use super::Spread;

/// Lines over one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The name of its file.
    pub name: Cow<'static, str>,
    /// The title.
    pub title: String,
    /// The label of the horizontal axis.
    pub x: Cow<'static, str>,
    /// The unit of the vertical axis.
    pub y: Cow<'static, str>,
    /// The scale of the vertical axis.
    pub scale: Scale,
    /// One line each.
    pub series: Vec<Series>,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// In proportion, from 0.
    Linear,
    /// Logarithmic: equal distances are equal factors.
    Factors,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name of the measured program.
    pub name: Cow<'static, str>,
    /// The measurements, from left to right.
    pub points: Vec<(f64, Spread)>,
}

impl Series {
    /// A line of counts that do not vary, or were measured once.
    pub fn new(name: impl Into<Cow<'static, str>>, points: Vec<(f64, f64)>) -> Series {
        let points = points.into_iter();
        let points = points.map(|(x, y)| (x, Spread::exactly(y)));
        Series::of_spreads(name, points.collect())
    }

    /// A line of repeated measurements.
    pub fn of_spreads(name: impl Into<Cow<'static, str>>, points: Vec<(f64, Spread)>) -> Series {
        let name = name.into();
        Series { name, points }
    }
}

//! Units of time, and rates.

use std::time::Duration;

use ratelimit_core::FixedWindow;

use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit;

const DAY: u64 = 24 * 60 * 60;

/// A unit of time of Envoy's rate limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// One second.
    Second,
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours.
    Day,
    /// 7 days.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    /// All units, from the longest.
    const ALL: [Unit; 7] = [
        Unit::Year,
        Unit::Month,
        Unit::Week,
        Unit::Day,
        Unit::Hour,
        Unit::Minute,
        Unit::Second,
    ];

    /// The unit of a name in any case, such as `minute`.
    pub(crate) fn from_name(name: &str) -> Option<Unit> {
        Unit::ALL
            .into_iter()
            .find(|unit| unit.as_str().eq_ignore_ascii_case(name))
    }

    /// The unit of a number of Envoy's enumeration; `None` for 0 and unknown numbers.
    pub(crate) fn from_number(number: i32) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.number() == number)
    }

    /// The unit of that length, if there is one.
    pub(crate) fn of_nanos(nanos: u128) -> Option<Unit> {
        let mut units = Unit::ALL.into_iter();
        units.find(|unit| unit.period().as_nanos() == nanos)
    }

    /// The number in Envoy's enumerations, which agree.
    pub(crate) fn number(self) -> i32 {
        let unit = match self {
            Unit::Second => rate_limit::Unit::Second,
            Unit::Minute => rate_limit::Unit::Minute,
            Unit::Hour => rate_limit::Unit::Hour,
            Unit::Day => rate_limit::Unit::Day,
            Unit::Week => rate_limit::Unit::Week,
            Unit::Month => rate_limit::Unit::Month,
            Unit::Year => rate_limit::Unit::Year,
        };
        unit.into()
    }

    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Unit::Second => "second",
            Unit::Minute => "minute",
            Unit::Hour => "hour",
            Unit::Day => "day",
            Unit::Week => "week",
            Unit::Month => "month",
            Unit::Year => "year",
        }
    }

    /// The length.
    pub const fn period(self) -> Duration {
        Duration::from_secs(match self {
            Unit::Second => 1,
            Unit::Minute => 60,
            Unit::Hour => 60 * 60,
            Unit::Day => DAY,
            Unit::Week => 7 * DAY,
            Unit::Month => 30 * DAY,
            Unit::Year => 365 * DAY,
        })
    }
}

/// A number of requests in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rate {
    pub(crate) requests: u32,
    pub(crate) unit: Unit,
    /// The period in units, at least 1.
    pub(crate) multiplier: u32,
}

impl Rate {
    /// The rate with the period of one unit.
    pub(crate) const fn per(unit: Unit, requests: u32) -> Rate {
        Rate {
            requests,
            unit,
            multiplier: 1,
        }
    }

    /// The period.
    pub(crate) const fn period(self) -> Duration {
        self.unit.period().saturating_mul(self.multiplier)
    }

    /// Whether a window of this rate can be counted exactly, and one of a request more.
    pub(crate) fn is_countable(self) -> bool {
        FixedWindow::new(u64::from(self.requests) + 1, self.period()).is_ok()
    }
}

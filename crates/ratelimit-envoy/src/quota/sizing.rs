//! How many requests a grant is for.

use std::time::Duration;

use ratelimit_core::Timestamp;

/// The time that a grant must last: a report every 5 seconds, and the ways there and back.
const HORIZON_MS: u64 = 6_000;

/// The shortest time over which a rate is measured.
const MIN_MEASURED: Duration = Duration::from_secs(1);

/// The requests per second that a bucket is asked for, in thousandths: half the old value and half the new one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DemandRate {
    milli_per_second: Option<u64>,
    measured_at: Option<Timestamp>,
    /// The requests since then.
    requests: u64,
}

impl DemandRate {
    /// Adds the requests of a report. The first report of a bucket begins the measurement.
    pub(crate) fn report(&mut self, now: Timestamp, requests: u64) {
        let Some(since) = self.measured_at else {
            self.measured_at = Some(now);
            return;
        };
        self.requests = self.requests.saturating_add(requests);
        let elapsed = now.since(since);
        if elapsed < MIN_MEASURED {
            return;
        }
        let micros = elapsed.as_micros();
        let milli_per_second = u128::from(self.requests) * 1_000_000_000 / micros;
        let milli_per_second = u64::try_from(milli_per_second).unwrap_or(u64::MAX);
        let smoothed = self.milli_per_second.map_or(milli_per_second, |old| {
            old / 2 + milli_per_second / 2 + (old & milli_per_second & 1)
        });
        self.milli_per_second = Some(smoothed);
        self.measured_at = Some(now);
        self.requests = 0;
    }

    /// The rate in thousandths, once it was measured.
    pub(crate) const fn milli_per_second(&self) -> Option<u64> {
        self.milli_per_second
    }

    /// The requests until the next report and its answer, rounded up.
    pub(crate) fn expected(&self) -> u64 {
        scaled(self.milli_per_second.unwrap_or(0), HORIZON_MS).saturating_add(1)
    }
}

/// The requests of a rate in thousandths per second over a number of milliseconds.
fn scaled(milli_per_second: u64, ms: u64) -> u64 {
    let requests = u128::from(milli_per_second) * u128::from(ms) / 1_000_000;
    u64::try_from(requests).unwrap_or(u64::MAX)
}

/// The demand of the other holders of a budget: the same bucket on other streams, and other buckets with its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherDemand {
    /// The other holders that reported within 11 seconds.
    pub holders: u64,
    /// The sum of their rates, in thousandths of requests per second.
    pub milli_per_second: u64,
}

/// The requests to charge for a grant: at least 1, at most `remaining`.
///
/// - A holder whose rate is unknown gets a quarter of what remains, divided by the number of holders.
/// - Others get their demand until the next report and a reserve of a quarter and of two standard deviations. Where much
///   remains they get twice that.
/// - No holder gets more than its part of the demand.
pub(crate) fn grant_size(
    rate: DemandRate,
    others: OtherDemand,
    remaining: u64,
    life: Duration,
) -> u64 {
    let holders = others.holders.saturating_add(1);
    let Some(milli_per_second) = rate.milli_per_second() else {
        return (remaining / holders.saturating_mul(4)).max(1);
    };
    let life_ms = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
    let demand = scaled(milli_per_second, HORIZON_MS.min(life_ms));
    let deviations = milli_per_second.saturating_mul(24_000).isqrt() / 1_000;
    let want = demand
        .saturating_add(demand / 4)
        .saturating_add(deviations)
        .saturating_add(1);
    let generous = want
        .saturating_mul(2)
        .min(remaining / holders.saturating_mul(2));
    let total = u128::from(milli_per_second) + u128::from(others.milli_per_second);
    let part = match total {
        0 => remaining / holders,
        total => {
            let part = u128::from(remaining) * u128::from(milli_per_second) / total;
            u64::try_from(part).unwrap_or(u64::MAX)
        }
    };
    let units = want.max(generous).min(part).max(1);
    // Envoy counts tokens in 32 bits.
    units.min(remaining).min(u64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(8);

    fn rate(per_second: u64) -> DemandRate {
        let mut rate = DemandRate::default();
        rate.report(Timestamp::from_secs(0), 1);
        rate.report(Timestamp::from_secs(5), per_second * 5);
        rate
    }

    #[test]
    fn the_rate_follows_by_halves() {
        let mut rate = rate(10);
        assert_eq!(rate.milli_per_second(), Some(10_000));
        // Two reports within a second are one measurement.
        rate.report(Timestamp::from_micros(5_300_000), 40);
        assert_eq!(rate.milli_per_second(), Some(10_000));
        rate.report(Timestamp::from_secs(10), 60);
        assert_eq!(rate.milli_per_second(), Some(15_000));
        assert_eq!(rate.expected(), 91);
    }

    #[test]
    fn a_holder_gets_its_demand_and_never_more_than_its_part() {
        let none = OtherDemand::default();
        let alone = |per_second, remaining| grant_size(rate(per_second), none, remaining, LONG);
        // 6 s of 10 requests, a quarter, two deviations of 7.7 and one.
        assert_eq!(alone(10, 150), 60 + 15 + 15 + 1);
        assert_eq!(alone(10, 40), 40);
        assert_eq!(alone(10, 1_000), 182, "twice, where much remains");
        assert_eq!(alone(0, 100), 2);
        assert_eq!(alone(0, 1), 1);

        let new = DemandRate::default();
        assert_eq!(grant_size(new, none, 60, LONG), 15);
        let crowd = OtherDemand {
            holders: 2,
            milli_per_second: 30_000,
        };
        assert_eq!(grant_size(new, crowd, 60, LONG), 5);
        assert_eq!(grant_size(rate(10), crowd, 60, LONG), 15);
        assert_eq!(grant_size(rate(0), crowd, 60, LONG), 1);
    }

    #[test]
    fn a_grant_that_ends_soon_is_for_less() {
        let none = OtherDemand::default();
        let soon = Duration::from_secs(2);
        assert_eq!(grant_size(rate(10), none, 70, soon), 20 + 5 + 15 + 1);
    }

    #[test]
    fn the_arithmetic_does_not_overflow() {
        let mut huge = DemandRate::default();
        huge.report(Timestamp::from_secs(0), 1);
        huge.report(Timestamp::from_secs(5), u64::MAX);
        let others = OtherDemand {
            holders: u64::MAX,
            milli_per_second: u64::MAX,
        };
        for remaining in [1, u64::MAX] {
            let units = grant_size(huge, others, remaining, Duration::MAX);
            assert!(units >= 1 && units <= remaining.min(u64::from(u32::MAX)));
        }
        assert!(huge.expected() > 0);
    }
}

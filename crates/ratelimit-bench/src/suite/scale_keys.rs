//! How the memory store grows with its keys.

use super::{
    Plan,
    binaries::bytes_a_key,
    duration::exact,
    memory::{check_at_random, shown},
};
use crate::{
    peer::memory::{KeyBudget, MAKERS, Maker},
    report::{Chart, Report, Scale, Series},
};

/// Ours, and the peer whose numbers are goals.
const RIVALS: [(&str, Maker); 2] = [MAKERS[0], MAKERS[1]];

pub(super) fn run(plan: Plan, report: &mut Report) {
    let counts: &[usize] = match plan {
        Plan::Quick => &[1_000, 10_000, 100_000, 1_000_000],
        Plan::Full => &[1_000, 10_000, 100_000, 1_000_000, 10_000_000],
    };
    let mut times = RIVALS.map(|(name, _)| Series::new(shown(name), Vec::new()));
    let mut bytes = times.clone();
    for &keys in counts {
        let contenders = RIVALS.iter().map(|(name, make)| {
            let mut contender = make(keys, KeyBudget::Kept);
            (0..keys).for_each(|key| (contender.ask)(key));
            (shown(name), contender)
        });
        let spreads = check_at_random(plan, keys, contenders.collect());
        for (place, (_, spread)) in spreads.into_iter().enumerate() {
            times[place].points.push((exact(keys), spread.median));
            let weight = bytes_a_key(RIVALS[place].0, keys);
            bytes[place].points.push((exact(keys), weight));
        }
    }
    let chart = |name, title: &str, y, series: [Series; 2]| Chart {
        name,
        title: title.to_owned(),
        x: "keys",
        y,
        scale: Scale::Linear,
        series: series.to_vec(),
    };
    report.charts.push(chart(
        "keys_time",
        "A check in memory, by the number of keys",
        "ns",
        times,
    ));
    report.charts.push(chart(
        "keys_bytes",
        "Bytes of a key in memory",
        "bytes",
        bytes,
    ));
}

//! How the memory store grows with its keys.

use super::{
    Plan,
    binaries::bytes_a_key,
    duration::exact,
    memory::{check_at_random, shown},
};
use crate::{
    peer::memory::{KeyBudget, MAKERS, Maker},
    report::{Chart, Report, Scale, Series, Spread},
};

/// Ours, and the peer whose numbers are goals.
const RIVALS: [(&str, Maker); 2] = [MAKERS[0], MAKERS[1]];

pub(super) fn run(plan: Plan, report: &mut Report) {
    let counts: &[usize] = match plan {
        Plan::Quick => &[1_000, 10_000, 100_000, 1_000_000],
        Plan::Full => &[1_000, 10_000, 100_000, 1_000_000, 10_000_000],
    };
    let mut times = RIVALS.map(|(name, _)| Series::new(in_charts(shown(name)), Vec::new()));
    let mut bytes = times.clone();
    for &keys in counts {
        let contenders = RIVALS.iter().map(|(name, make)| {
            let mut contender = make(keys, KeyBudget::Kept);
            (0..keys).for_each(|key| (contender.ask)(key));
            (shown(name), contender)
        });
        let spreads = check_at_random(plan, keys, contenders.collect());
        for (place, (_, spread)) in spreads.into_iter().enumerate() {
            let name = shown(RIVALS[place].0);
            let spread = in_table(report, keys, "memory, a million keys", name).unwrap_or(spread);
            times[place].points.push((exact(keys), spread));
            let weight = in_table(report, keys, "memory, a key of a million", name);
            let weight =
                weight.unwrap_or_else(|| Spread::exactly(bytes_a_key(RIVALS[place].0, keys)));
            bytes[place].points.push((exact(keys), weight));
        }
    }
    let chart = |name: &'static str, title: &str, y: &'static str, series: [Series; 2]| Chart {
        name: name.into(),
        title: title.to_owned(),
        x: "keys".into(),
        y: y.into(),
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

/// The number of a row about a million keys, so that table and chart have one number.
fn in_table(report: &Report, keys: usize, what: &str, name: &str) -> Option<Spread> {
    if keys != 1_000_000 {
        return None;
    }
    let mut rows = report.rows.iter().filter(|row| row.what == what);
    rows.find_map(|row| match &row.peer {
        _ if name == shown(RIVALS[0].0) => Some(row.ours),
        Some(peer) if peer.name == name => Some(peer.number),
        _ => None,
    })
}

/// The name of a subject in charts.
fn in_charts(name: &'static str) -> &'static str {
    if name == shown(RIVALS[0].0) {
        return "this limiter";
    }
    name
}

//! Our memory store beside other limiters in memory.

use super::{Plan, binaries::bytes_a_key};
use crate::{
    peer::memory::{Contender, KeyBudget, MAKERS, Maker},
    report::{Goal, Report, Row, Spread},
};

const MILLION: usize = 1_000_000;

/// All but limitador, which takes a kilobyte a key and minutes for a million.
const LARGE: &[(&str, Maker)] = MAKERS.first_chunk::<4>().expect("there are more");

pub(super) fn run(plan: Plan, report: &mut Report) {
    let hot = hot(plan);
    add(
        report,
        "memory, a hot key",
        "ns",
        &hot,
        Goal::RatioAtMost(1.6),
    );
    let million = many(plan, MILLION);
    add(
        report,
        "memory, a million keys",
        "ns",
        &million,
        Goal::RatioAtMost(1.0),
    );

    let bytes = LARGE
        .iter()
        .map(|(name, _)| (shown(name), Spread::exactly(bytes_a_key(name, MILLION))));
    let bytes: Vec<_> = bytes.collect();
    add(
        report,
        "memory, a key of a million",
        "bytes",
        &bytes,
        Goal::AtMost(110.0),
    );
}

/// Nanoseconds of a check on one key, of each contender in turn.
fn hot(plan: Plan) -> Vec<(&'static str, Spread)> {
    let mut contenders = MAKERS.map(|(_, make)| make(1, KeyBudget::Plenty));
    let mut works = contenders.each_mut().map(|it| move |_| (it.ask)(0));
    let mut works = works.each_mut().map(|work| work as &mut dyn FnMut(usize));
    let spreads = plan.nanoseconds(plan.times(), &mut works);
    MAKERS
        .iter()
        .map(|(name, _)| shown(name))
        .zip(spreads)
        .collect()
}

/// Nanoseconds of a check on a random one of `keys` known keys.
fn many(plan: Plan, keys: usize) -> Vec<(&'static str, Spread)> {
    let contenders = LARGE.iter().map(|(name, make)| {
        let mut contender = make(keys, KeyBudget::Kept);
        (0..keys).for_each(|key| (contender.ask)(key));
        (shown(name), contender)
    });
    check_at_random(plan, keys, contenders.collect())
}

/// Nanoseconds of contenders that know all keys.
pub(super) fn check_at_random(
    plan: Plan,
    keys: usize,
    mut contenders: Vec<(&'static str, Contender)>,
) -> Vec<(&'static str, Spread)> {
    let names: Vec<&'static str> = contenders.iter().map(|(name, _)| *name).collect();
    let mut works: Vec<_> = contenders
        .iter_mut()
        .map(|(_, it)| {
            let mut key = Scattered::new(keys);
            move |_| (it.ask)(key.next())
        })
        .collect();
    let mut works: Vec<&mut dyn FnMut(usize)> = works.iter_mut().map(|work| work as _).collect();
    let spreads = plan.nanoseconds(plan.times() / 2, &mut works);
    names.into_iter().zip(spreads).collect()
}

/// Ours beside each other; the goal is set against the first.
fn add(
    report: &mut Report,
    what: &str,
    unit: &'static str,
    measured: &[(&'static str, Spread)],
    goal: Goal,
) {
    let (_, ours) = measured[0];
    for (place, (name, theirs)) in measured[1..].iter().enumerate() {
        let row = Row::new(what, unit, ours).beside(*name, *theirs);
        report
            .rows
            .push(if place == 0 { row.goal(goal) } else { row });
    }
}

/// The words for a contender in a table.
pub(super) fn shown(name: &str) -> &'static str {
    match name {
        "limiter" => "ours",
        "store" => "our store by its trait",
        "governor" => "governor",
        "throttlecrab" => "throttlecrab",
        _ => "limitador",
    }
}

/// Numbers below a bound in an order that no cache foresees: every one comes once before any comes
/// twice.
struct Scattered {
    bound: usize,
    at: usize,
}

impl Scattered {
    /// Shares no factor with a power of ten, and leads far away.
    const STEP: usize = 1_299_709_993;

    const fn new(bound: usize) -> Scattered {
        Scattered { bound, at: 0 }
    }

    const fn next(&mut self) -> usize {
        self.at = (self.at + Scattered::STEP) % self.bound;
        self.at
    }
}

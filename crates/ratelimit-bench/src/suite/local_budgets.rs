//! Instructions of hits that are decided from prefetched units, and of the local fallback.

use std::collections::HashMap;

use super::Plan;
use crate::{
    callgrind::count,
    report::{Goal, Report, Row, Spread},
    workload::fallback,
};

pub(super) fn run(_plan: Plan, report: &mut Report) {
    let counts: HashMap<String, f64> = count("instructions_local").into_iter().collect();
    let row = |what: String, ours: f64, peer: &str, theirs: f64| {
        Row::new(what, "instructions", Spread::exactly(ours)).beside(peer, Spread::exactly(theirs))
    };
    let hit = row(
        "a prefetched hit".to_owned(),
        counts["prefetch.token_bucket.allowed"],
        "a hit in memory",
        counts["memory.token_bucket.allowed"],
    );
    report.rows.push(hit.goal(Goal::RatioAtMost(1.3)));
    for (name, _) in fallback::LIMITS {
        let count = |work: String| counts[&work];
        let with = count(format!("fallback.{name}.local"));
        let without = count(format!("fallback.{name}.open"));
        let what = format!("local fallback follows a reply of Redis, {name}");
        let check = count(format!("client.{name}"));
        let row = row(what, with - without, "the check without it", check);
        report.rows.push(row.goal(Goal::RatioAtMost(0.05)));
    }
}

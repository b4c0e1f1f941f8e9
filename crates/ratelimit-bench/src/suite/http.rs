//! Requests through layers, in this process.

use std::collections::HashMap;

use super::Plan;
use crate::{
    callgrind::count,
    peer::http,
    report::{Goal, Report, Row, Spread},
};

pub(super) fn run(plan: Plan, report: &mut Report) {
    let counts: HashMap<String, f64> = count("instructions_peers").into_iter().collect();
    let over = |name: &str, bare: &str| Spread::exactly(counts[name] - counts[bare]);
    let axum = |name: &str| over(name, "axum.bare");
    let row = |what: &str, ours: Spread| Row::new(what, "instructions", ours);
    report.rows.extend([
        row("layer over bare axum, without headers", axum("axum.ours"))
            .beside("tower_governor", axum("axum.tower_governor")),
        row(
            "layer over bare axum, three headers",
            axum("axum.ours_three_headers"),
        )
        .beside("tower_governor", axum("axum.tower_governor_headers"))
        .goal(Goal::RatioAtMost(1.0)),
        row(
            "layer over bare axum, three headers, no decision for the handler",
            axum("axum.ours_three_headers_only"),
        )
        .beside("tower_governor", axum("axum.tower_governor_headers")),
        row("layer over bare axum, IETF headers", axum("axum.ours_ietf"))
            .beside("a layer that does nothing", axum("axum.idle_layer")),
        row(
            "a request that is denied",
            Spread::exactly(counts["axum.ours_denied"]),
        )
        .beside(
            "tower_governor",
            Spread::exactly(counts["axum.tower_governor_denied"]),
        ),
        row(
            "middleware over bare actix-web, three headers",
            over("actix.ours_three_headers", "actix.bare"),
        )
        .beside("the bare request", Spread::exactly(counts["actix.bare"])),
        row("memory, a hot key", Spread::exactly(counts["hot.limiter"]))
            .beside("governor", Spread::exactly(counts["hot.governor"])),
        row("memory, a hot key", Spread::exactly(counts["hot.limiter"])).beside(
            "our store by its trait",
            Spread::exactly(counts["hot.store"]),
        ),
    ]);
    denied(plan, report);
}

fn denied(plan: Plan, report: &mut Report) {
    let (mut ours, mut theirs) = (http::denied_by_us(), http::denied_by_them());
    let mut works: [&mut dyn FnMut(usize); 2] = [&mut |_| (ours.once)(), &mut |_| (theirs.once)()];
    let spreads = plan.nanoseconds(plan.times() / 10, &mut works);
    let per_second = |spread: Spread| spread.map(|nanoseconds| 1e9 / nanoseconds);
    report.rows.push(
        Row::new(
            "axum, requests that are denied",
            "requests/s",
            per_second(spreads[0]),
        )
        .beside("tower_governor", per_second(spreads[1]))
        .goal(Goal::RatioAtLeast(3.0)),
    );
}

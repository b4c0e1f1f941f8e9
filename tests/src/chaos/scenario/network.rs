//! A network that is silent, or closed.

use std::time::{Duration, Instant};

use super::scenario_run::ScenarioRun;
use crate::chaos::{
    fixture::Kind,
    report::{Expected, Report},
};

/// Row 5: connections are silent, and new ones would work.
pub async fn half_open(kind: Kind) -> Report {
    let run = ScenarioRun::start(kind).await;

    run.fixture.proxy.go_half_open();
    let healed = run.healed(Instant::now()).await;

    let expected = Expected {
        row: 5,
        fault: "half-open TCP",
        healed,
        dead_phases: Vec::new(),
        budgets: 2,
    };
    run.report(expected).await
}

/// Row 22: connections are refused for three seconds.
pub async fn refused(kind: Kind) -> Report {
    let run = ScenarioRun::start(kind).await;

    run.fixture.proxy.refuse().await;
    run.fixture.proxy.reset();
    let dead = run.load.phase().await;
    run.load.run(Duration::from_secs(3)).await;
    run.load.phase().await;
    run.fixture.proxy.listen().await;
    let healed = run.healed(Instant::now()).await;

    let expected = Expected {
        row: 22,
        fault: "connect refused",
        healed,
        dead_phases: vec![dead],
        budgets: 2,
    };
    run.report(expected).await
}

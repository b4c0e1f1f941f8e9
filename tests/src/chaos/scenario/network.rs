//! A network that is silent, or closed.

use std::time::{Duration, Instant};

use super::trial::Trial;
use crate::chaos::{
    bench::Kind,
    report::{Expected, Report},
};

/// Row 5: connections are silent, and new ones would work.
pub async fn half_open(kind: Kind) -> Report {
    let trial = Trial::start(kind).await;

    trial.bench.proxy.go_half_open();
    let healed = trial.healed(Instant::now()).await;

    let expected = Expected {
        row: 5,
        fault: "half-open TCP",
        healed,
        dead_phases: Vec::new(),
        budgets: 2,
    };
    trial.report(expected).await
}

/// Row 22: connections are refused for three seconds.
pub async fn refused(kind: Kind) -> Report {
    let trial = Trial::start(kind).await;

    trial.bench.proxy.refuse().await;
    trial.bench.proxy.reset();
    let dead = trial.load.phase().await;
    trial.load.run(Duration::from_secs(3)).await;
    trial.load.phase().await;
    trial.bench.proxy.listen().await;
    let healed = trial.healed(Instant::now()).await;

    let expected = Expected {
        row: 22,
        fault: "connect refused",
        healed,
        dead_phases: vec![dead],
        budgets: 2,
    };
    trial.report(expected).await
}

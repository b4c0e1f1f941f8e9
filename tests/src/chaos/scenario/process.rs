//! A server that dies, or stands still.

use std::time::{Duration, Instant};

use tokio::task::block_in_place;

use super::scenario_run::ScenarioRun;
use crate::chaos::{
    fixture::Kind,
    report::{Expected, Report},
};

const OUTAGE: Duration = Duration::from_secs(3);

/// Row 1: the server is killed under load, and starts again empty.
pub async fn killed(kind: Kind) -> Report {
    let mut run = ScenarioRun::start(kind).await;

    block_in_place(|| run.fixture.server.kill());
    let dead = run.load.phase().await;
    run.load.run(OUTAGE).await;
    run.load.phase().await;
    block_in_place(|| run.fixture.server.restart());
    let healed = run.healed(Instant::now()).await;

    let expected = Expected {
        row: 1,
        fault: "kill -9, restart empty",
        healed,
        dead_phases: vec![dead],
        budgets: 3,
    };
    run.report(expected).await
}

/// Row 3: the server is stopped for three seconds.
pub async fn stopped(kind: Kind) -> Report {
    let run = ScenarioRun::start(kind).await;

    run.fixture.server.signal("STOP");
    let dead = run.load.phase().await;
    run.load.run(OUTAGE).await;
    run.load.phase().await;
    run.fixture.server.signal("CONT");
    let healed = run.healed(Instant::now()).await;

    let expected = Expected {
        row: 3,
        fault: "SIGSTOP for 3 s",
        healed,
        dead_phases: vec![dead],
        budgets: 2,
    };
    run.report(expected).await
}

/// Row 4: the server holds writes back.
pub async fn paused(kind: Kind) -> Report {
    let run = ScenarioRun::start(kind).await;

    run.fixture.command("CLIENT PAUSE 10000 WRITE");
    let dead = run.load.phase().await;
    run.load.run(Duration::from_millis(300)).await;
    run.load.phase().await;
    run.fixture.command("CLIENT UNPAUSE");
    let healed = run.healed(Instant::now()).await;

    let expected = Expected {
        row: 4,
        fault: "CLIENT PAUSE 300 WRITE",
        healed,
        dead_phases: vec![dead],
        budgets: 2,
    };
    run.report(expected).await
}

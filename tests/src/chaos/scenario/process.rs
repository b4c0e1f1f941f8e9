//! A server that dies, or stands still.

use std::time::{Duration, Instant};

use tokio::task::block_in_place;

use super::trial::Trial;
use crate::chaos::{
    bench::Kind,
    report::{Expected, Report},
};

const OUTAGE: Duration = Duration::from_secs(3);

/// Row 1: the server is killed under load, and starts again empty.
pub async fn killed(kind: Kind) -> Report {
    let mut trial = Trial::start(kind).await;

    block_in_place(|| trial.bench.server.kill());
    let dead = trial.load.phase().await;
    trial.load.run(OUTAGE).await;
    trial.load.phase().await;
    block_in_place(|| trial.bench.server.restart());
    let healed = trial.healed(Instant::now()).await;

    let expected = Expected {
        row: 1,
        fault: "kill -9, restart empty",
        healed,
        dead_phases: vec![dead],
        budgets: 3,
    };
    trial.report(expected).await
}

/// Row 3: the server is stopped for three seconds.
pub async fn stopped(kind: Kind) -> Report {
    let trial = Trial::start(kind).await;

    trial.bench.server.signal("STOP");
    let dead = trial.load.phase().await;
    trial.load.run(OUTAGE).await;
    trial.load.phase().await;
    trial.bench.server.signal("CONT");
    let healed = trial.healed(Instant::now()).await;

    let expected = Expected {
        row: 3,
        fault: "SIGSTOP for 3 s",
        healed,
        dead_phases: vec![dead],
        budgets: 2,
    };
    trial.report(expected).await
}

/// Row 4: the server holds writes back.
pub async fn paused(kind: Kind) -> Report {
    let trial = Trial::start(kind).await;

    trial.bench.command("CLIENT PAUSE 10000 WRITE");
    let dead = trial.load.phase().await;
    trial.load.run(Duration::from_millis(300)).await;
    trial.load.phase().await;
    trial.bench.command("CLIENT UNPAUSE");
    let healed = trial.healed(Instant::now()).await;

    let expected = Expected {
        row: 4,
        fault: "CLIENT PAUSE 300 WRITE",
        healed,
        dead_phases: vec![dead],
        budgets: 2,
    };
    trial.report(expected).await
}

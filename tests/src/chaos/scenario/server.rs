//! A server that forgets scripts, connections, passwords, or that it was the master.

use std::time::{Duration, Instant};

use ratelimit_core::FailureMode;
use tokio::task::block_in_place;

use super::scenario_run::ScenarioRun;
use crate::{
    chaos::{
        fixture::{Fixture, Kind, ours},
        report::{Expected, Report},
    },
    redis::RedisProcess,
};

/// Row 10: the server forgets its scripts every 50 ms.
///
/// Our budget is long here, so that a decision that leaves the store does so for this one reason.
pub async fn flushed_scripts(kind: Kind) -> Report {
    let fixture = Fixture::start(&[]).await;
    let layer = if kind == Kind::Ours {
        let config = fixture.config().timeout(Duration::from_secs(1));
        std::sync::Arc::new(ours(config, FailureMode::Local).await)
    } else {
        fixture.layer(kind).await
    };
    let run = ScenarioRun::over(kind, fixture, layer).await;

    for _ in 0..40 {
        run.fixture.command("SCRIPT FLUSH");
        run.load.run(Duration::from_millis(50)).await;
    }
    let healed = run.healed(Instant::now()).await;

    let expected = Expected {
        row: 10,
        fault: "SCRIPT FLUSH every 50 ms",
        healed,
        dead_phases: Vec::new(),
        budgets: 1,
    };
    run.report(expected).await
}

/// Row 14: the server becomes a replica of another, which is where new connections lead.
pub async fn demoted(kind: Kind) -> Report {
    let mut run = ScenarioRun::start(kind).await;
    let promoted = block_in_place(|| RedisProcess::start(&[]));

    run.fixture.proxy.retarget(promoted.port());
    let replicate = format!("REPLICAOF 127.0.0.1 {}", promoted.port());
    run.fixture.command(&replicate);
    let healed = run.healed(Instant::now()).await;

    let _demoted = std::mem::replace(&mut run.fixture.server, promoted);
    let expected = Expected {
        row: 14,
        fault: "READONLY after a demotion",
        healed,
        dead_phases: Vec::new(),
        budgets: 3,
    };
    run.report(expected).await
}

/// Row 18: the password is changed for three seconds, and then changed back.
pub async fn wrong_password(kind: Kind) -> Report {
    let fixture = Fixture::start(&[]).await;
    fixture.command("ACL SETUSER limiter on >right ~* +@all");
    let layer = fixture.layer_as(kind, "limiter:right@").await;
    let run = ScenarioRun::over(kind, fixture, layer).await;

    run.fixture.command("ACL SETUSER limiter resetpass >wrong");
    run.fixture.command("CLIENT KILL USER limiter");
    let dead = run.load.phase().await;
    run.load.run(Duration::from_secs(3)).await;
    run.load.phase().await;
    run.fixture.command("ACL SETUSER limiter resetpass >right");
    let healed = run.healed(Instant::now()).await;

    let expected = Expected {
        row: 18,
        fault: "WRONGPASS, then healed",
        healed,
        dead_phases: vec![dead],
        budgets: 2,
    };
    run.report(expected).await
}

/// Row 19: the server kills all connections, again and again.
pub async fn killed_connections(kind: Kind) -> Report {
    let run = ScenarioRun::start(kind).await;

    for _ in 0..10 {
        run.fixture.command("CLIENT KILL TYPE normal");
        run.load.run(Duration::from_millis(200)).await;
    }
    let healed = run.healed(Instant::now()).await;

    let expected = Expected {
        row: 19,
        fault: "CLIENT KILL every 200 ms",
        healed,
        dead_phases: Vec::new(),
        budgets: 2,
    };
    run.report(expected).await
}

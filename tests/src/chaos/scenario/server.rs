//! A server that forgets scripts, connections, passwords, or that it was the master.

use std::time::{Duration, Instant};

use ratelimit_core::FailureMode;
use tokio::task::block_in_place;

use super::trial::Trial;
use crate::{
    chaos::{
        bench::{Bench, Kind, ours},
        report::{Expected, Report},
    },
    redis::RedisProcess,
};

/// Row 10: the server forgets its scripts every 50 ms.
///
/// Our budget is long here, so that a decision that leaves the store does so for this one reason.
pub async fn flushed_scripts(kind: Kind) -> Report {
    let bench = Bench::start(&[]).await;
    let layer = if kind == Kind::Ours {
        let config = bench.config().timeout(Duration::from_secs(1));
        std::sync::Arc::new(ours(config, FailureMode::Local).await)
    } else {
        bench.layer(kind).await
    };
    let trial = Trial::over(kind, bench, layer).await;

    for _ in 0..40 {
        trial.bench.command("SCRIPT FLUSH");
        trial.load.run(Duration::from_millis(50)).await;
    }
    let healed = trial.healed(Instant::now()).await;

    let expected = Expected {
        row: 10,
        fault: "SCRIPT FLUSH every 50 ms",
        healed,
        dead_phases: Vec::new(),
        budgets: 1,
    };
    trial.report(expected).await
}

/// Row 14: the server becomes a replica of another, which is where new connections lead.
pub async fn demoted(kind: Kind) -> Report {
    let mut trial = Trial::start(kind).await;
    let promoted = block_in_place(|| RedisProcess::start(&[]));

    trial.bench.proxy.retarget(promoted.port());
    let replicate = format!("REPLICAOF 127.0.0.1 {}", promoted.port());
    trial.bench.command(&replicate);
    let healed = trial.healed(Instant::now()).await;

    let _demoted = std::mem::replace(&mut trial.bench.server, promoted);
    let expected = Expected {
        row: 14,
        fault: "READONLY after a demotion",
        healed,
        dead_phases: Vec::new(),
        budgets: 3,
    };
    trial.report(expected).await
}

/// Row 18: the password is changed for three seconds, and then changed back.
pub async fn wrong_password(kind: Kind) -> Report {
    let bench = Bench::start(&[]).await;
    bench.command("ACL SETUSER limiter on >right ~* +@all");
    let layer = bench.layer_as(kind, "limiter:right@").await;
    let trial = Trial::over(kind, bench, layer).await;

    trial.bench.command("ACL SETUSER limiter resetpass >wrong");
    trial.bench.command("CLIENT KILL USER limiter");
    let dead = trial.load.phase().await;
    trial.load.run(Duration::from_secs(3)).await;
    trial.load.phase().await;
    trial.bench.command("ACL SETUSER limiter resetpass >right");
    let healed = trial.healed(Instant::now()).await;

    let expected = Expected {
        row: 18,
        fault: "WRONGPASS, then healed",
        healed,
        dead_phases: vec![dead],
        budgets: 2,
    };
    trial.report(expected).await
}

/// Row 19: the server kills all connections, again and again.
pub async fn killed_connections(kind: Kind) -> Report {
    let trial = Trial::start(kind).await;

    for _ in 0..10 {
        trial.bench.command("CLIENT KILL TYPE normal");
        trial.load.run(Duration::from_millis(200)).await;
    }
    let healed = trial.healed(Instant::now()).await;

    let expected = Expected {
        row: 19,
        fault: "CLIENT KILL every 200 ms",
        healed,
        dead_phases: Vec::new(),
        budgets: 2,
    };
    trial.report(expected).await
}

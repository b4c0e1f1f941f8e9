//! Requests and replies that are lost, torn or late.

use std::time::{Duration, Instant};

use super::scenario_run::ScenarioRun;
use crate::chaos::{
    fixture::Kind,
    proxy::Loss,
    report::{Expected, Report},
};

const LOSSES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);
const LOST_WITHIN: Duration = Duration::from_secs(2);

/// Row 6: connections are reset in the middle of a reply.
pub async fn torn_replies(kind: Kind) -> Report {
    lossy(kind, 6, "RST in the middle of a reply", Loss::RestOfReply).await
}

/// Row 7: replies are lost.
pub async fn lost_replies(kind: Kind) -> Report {
    lossy(kind, 7, "lost reply", Loss::Reply).await
}

/// Row 8: requests are lost.
pub async fn lost_requests(kind: Kind) -> Report {
    lossy(kind, 8, "lost request", Loss::Request).await
}

async fn lossy(kind: Kind, row: u32, fault: &'static str, loss: Loss) -> Report {
    let run = ScenarioRun::start(kind).await;

    let mut last = Instant::now();
    for _ in 0..LOSSES {
        run.load.run(PAUSE).await;
        run.fixture.proxy.lose(loss, "own-");
        let asked = Instant::now();
        while run.fixture.proxy.loses() && asked.elapsed() < LOST_WITHIN {
            run.load.run(Duration::from_millis(5)).await;
        }
        last = Instant::now();
    }
    let healed = run.healed(last).await;

    let expected = Expected {
        row,
        fault,
        healed,
        dead_phases: Vec::new(),
        budgets: 2,
    };
    run.report(expected).await
}

/// Row 9: replies take longer than anybody waits, and then requests do.
pub async fn late_replies(kind: Kind) -> Report {
    let run = ScenarioRun::start(kind).await;

    run.fixture.proxy.delay(Duration::from_millis(60));
    run.load.run(Duration::from_secs(1)).await;
    run.fixture.proxy.behave();
    run.healed(Instant::now()).await;
    run.fixture.proxy.freeze();
    let dead = run.load.phase().await;
    run.load.run(Duration::from_secs(1)).await;
    run.load.phase().await;
    run.fixture.proxy.thaw();
    let healed = run.healed(Instant::now()).await;

    let expected = Expected {
        row: 9,
        fault: "reply later than the budget",
        healed,
        dead_phases: vec![dead],
        budgets: 2,
    };
    run.report(expected).await
}

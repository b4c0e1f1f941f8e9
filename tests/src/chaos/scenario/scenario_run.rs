//! One layer under load, while something breaks.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::chaos::{
    fixture::{Fixture, Kind},
    layer::Layer,
    load::Load,
    report::{Expected, Report},
};

/// How long callers call before and after the fault.
const WARM: Duration = Duration::from_millis(500);
/// How long to wait for healing before calling it none.
const HEALS_WITHIN: Duration = Duration::from_secs(10);

/// A layer under load.
#[derive(Debug)]
pub struct ScenarioRun {
    kind: Kind,
    /// The server, and the proxy in front of it.
    pub fixture: Fixture,
    /// The callers.
    pub load: Load,
}

impl ScenarioRun {
    /// Starts a server, a layer and its callers.
    pub async fn start(kind: Kind) -> ScenarioRun {
        ScenarioRun::start_with(kind, &[]).await
    }

    /// The same, the server with further arguments.
    pub async fn start_with(kind: Kind, extra: &[&str]) -> ScenarioRun {
        let fixture = Fixture::start(extra).await;
        let layer = fixture.layer(kind).await;
        ScenarioRun::over(kind, fixture, layer).await
    }

    /// Starts the callers of a layer.
    pub async fn over(kind: Kind, fixture: Fixture, layer: Arc<dyn Layer>) -> ScenarioRun {
        let load = Load::start(layer);
        load.run(WARM).await;
        ScenarioRun {
            kind,
            fixture,
            load,
        }
    }

    /// Waits until the store decides again, and tells how long after `since` it did.
    pub async fn healed(&self, since: Instant) -> Option<Duration> {
        let healed = self.load.healed(since, HEALS_WITHIN).await;
        self.load.run(WARM).await;
        healed
    }

    /// Ends the calls, and holds them against what was counted.
    pub async fn report(self, expected: Expected) -> Report {
        let ledger = self.load.stop().await;
        let audit = self.fixture.audit(self.kind).await;
        Report::new(expected, &ledger, &*audit).await
    }
}

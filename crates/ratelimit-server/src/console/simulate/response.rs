//! The answer to a simulation.

use ratelimit_core::Policy;
use serde::{Serialize, Serializer, ser::SerializeTuple as _};

use crate::simulate::{
    Bin, BudgetLine, BudgetPoint, HitOutcome, Replay, Summary, TimeSpan, TraceHit, bins,
    departures, window_edges,
};

/// Maximum number of keys in an answer.
const MAX_KEYS: usize = 50;

/// The runs of all policies on the same traffic. All times are microseconds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SimulateResponse {
    pub(super) scene: SceneResponse,
    pub(super) runs: Vec<RunResponse>,
    /// Hits that pass under the first policy alone.
    pub(super) only_a: usize,
    /// Hits that pass under the second policy alone.
    pub(super) only_b: usize,
}

#[derive(Serialize)]
pub(super) struct SceneResponse {
    start: i64,
    end: i64,
}

impl From<TimeSpan> for SceneResponse {
    fn from(time_span: TimeSpan) -> SceneResponse {
        SceneResponse {
            start: time_span.start_micros,
            end: time_span.end_micros,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunResponse {
    limits: String,
    allowed: u64,
    delayed: u64,
    over: u64,
    denied: u64,
    impossible: u64,
    #[serde(rename = "longestWaitMicros")]
    max_wait_micros: u64,
    keys_denied: usize,
    bins: Vec<Bin>,
    edges: Vec<i64>,
    budgets: Vec<BudgetResponse>,
    leaves: Vec<i64>,
    keys: Vec<KeyResponse>,
}

#[derive(Serialize)]
struct BudgetResponse {
    name: String,
    limit: u64,
    points: Vec<BudgetPoint>,
}

impl From<BudgetLine> for BudgetResponse {
    fn from(line: BudgetLine) -> BudgetResponse {
        BudgetResponse {
            name: line.name,
            limit: line.limit,
            points: line.points,
        }
    }
}

#[derive(Serialize)]
struct KeyResponse {
    key: String,
    allowed: u64,
    denied: u64,
}

impl RunResponse {
    pub(super) fn new(
        limits: String,
        policy: &Policy,
        trace: &[TraceHit],
        time_span: TimeSpan,
        replay: Replay,
    ) -> RunResponse {
        let summary = Summary::new(trace, &replay);
        let keys_denied = summary.keys_denied();
        let keys = summary.keys.into_iter().take(MAX_KEYS);
        let keys = keys.map(|key| KeyResponse {
            key: key.key,
            allowed: key.passed,
            denied: key.denied,
        });
        RunResponse {
            limits,
            allowed: summary.hits.get(HitOutcome::Allowed),
            delayed: summary.hits.get(HitOutcome::Delayed),
            over: summary.hits.get(HitOutcome::Over),
            denied: summary.hits.get(HitOutcome::Denied),
            impossible: summary.hits.get(HitOutcome::Impossible),
            max_wait_micros: summary.max_wait_micros,
            keys_denied,
            bins: bins(time_span, &replay),
            edges: window_edges(time_span, policy),
            leaves: departures(time_span, policy, &replay),
            budgets: replay
                .budgets
                .into_iter()
                .map(BudgetResponse::from)
                .collect(),
            keys: keys.collect(),
        }
    }
}

/// Written as `[atMicros, remaining]`.
impl Serialize for BudgetPoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pair = serializer.serialize_tuple(2)?;
        pair.serialize_element(&self.at_micros)?;
        pair.serialize_element(&self.remaining)?;
        pair.end()
    }
}

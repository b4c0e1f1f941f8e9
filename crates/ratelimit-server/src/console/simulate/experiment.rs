//! Policies, the traffic that they are tried on, and the work within its bounds.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use axum::http::StatusCode;
use ratelimit_core::{Clock, Decision, MemoryStore, Policy, Timestamp};

use super::{
    request::{PolicyText, SimulateRequest, TrafficSource},
    response::{RunResponse, SimulateResponse},
};
use crate::{
    api_error::ApiError,
    cli_error::CliError,
    json_object::Object,
    simulate::{
        Replay, ReplayOutput, Run, TimeSpan, TraceHit, TraceReader, capacity_for, check_key_names,
        parse_throttle,
    },
};

const MAX_POLICIES: usize = 2;
const MAX_HITS: usize = 100_000;
const DEFAULT_HITS: u64 = 200;
const DEFAULT_SEED: u64 = 1;
const MAX_TRACE_BYTES: usize = 1 << 20;

/// The clock is read once in this many hits.
const HITS_PER_LOOK: u32 = 64;

/// A valid request.
pub(super) struct Experiment {
    policies: Vec<(String, Policy)>,
    trace: Vec<TraceHit>,
}

impl Experiment {
    pub(super) fn new(request: SimulateRequest) -> Result<Experiment, ApiError> {
        let count = request.policies.len();
        if !(1..=MAX_POLICIES).contains(&count) {
            let message = format!("policies must have 1 or {MAX_POLICIES} entries, not {count}");
            return Err(ApiError::bad_request(message));
        }
        let policies = request.policies.into_iter().enumerate();
        let policies = policies.map(|(index, Object(text))| {
            let policy = parse_policy(index, &text);
            let policy =
                policy.map_err(|why| ApiError::bad_request(why.to_string()).in_policy(index))?;
            Ok((text.limits, policy))
        });
        let policies: Vec<(String, Policy)> = policies.collect::<Result<_, ApiError>>()?;
        let Object(traffic) = request.traffic;
        let trace = hits(traffic, &policies[0].1)?;
        Ok(Experiment { policies, trace })
    }

    /// Replays the traffic on each policy in turn.
    pub(super) async fn run(self, pace: &Pace) -> Result<SimulateResponse, ApiError> {
        let policies: Vec<Policy> = self.policies.iter().map(|one| one.1.clone()).collect();
        let time_span = TimeSpan::of(&self.trace, &policies);
        let mut passed: Vec<Vec<bool>> = Vec::new();
        let mut runs = Vec::new();
        for (limits, policy) in self.policies {
            let replay = replay(&policy, &self.trace, time_span, pace).await?;
            passed.push(replay.hits.iter().map(|hit| hit.outcome.passes()).collect());
            runs.push(RunResponse::new(
                limits,
                &policy,
                &self.trace,
                time_span,
                replay,
            ));
        }
        let (only_a, only_b) = match &passed[..] {
            [a, b] => (passed_alone(a, b), passed_alone(b, a)),
            _ => (0, 0),
        };
        Ok(SimulateResponse {
            scene: time_span.into(),
            runs,
            only_a,
            only_b,
        })
    }
}

fn parse_policy(index: usize, text: &PolicyText) -> Result<Policy, CliError> {
    let policy = Policy::parse(&format!("simulate-{index}"), &text.limits)?;
    check_key_names(&policy)?;
    Ok(match &text.throttle {
        Some(throttle) => policy.with_throttle(parse_throttle(throttle)?)?,
        None => policy,
    })
}

/// The hits of a trace or of generated traffic, in the order of time.
fn hits(traffic: TrafficSource, policy: &Policy) -> Result<Vec<TraceHit>, ApiError> {
    let bad = |why: String| Err(ApiError::bad_request(why));
    match traffic {
        TrafficSource {
            kind: Some(kind),
            hits,
            seed,
            trace: None,
        } => {
            let hits = hits.unwrap_or(DEFAULT_HITS);
            if !(1..=MAX_HITS as u64).contains(&hits) {
                return bad(format!("hits must be from 1 to {MAX_HITS}"));
            }
            let made = kind.hits(&policy.limits()[0], hits, seed.unwrap_or(DEFAULT_SEED));
            made.map_err(|why| ApiError::bad_request(why.to_string()))
        }
        TrafficSource {
            kind: None,
            hits: None,
            seed: None,
            trace: Some(text),
        } => {
            if text.len() > MAX_TRACE_BYTES {
                return bad(format!("a trace has at most {MAX_TRACE_BYTES} bytes"));
            }
            let reader = TraceReader {
                format: None,
                skips_invalid: false,
                max_hits: MAX_HITS,
            };
            let trace = reader.read(text.as_bytes());
            let trace = trace.map_err(|why| ApiError::bad_request(why.to_string()))?;
            if trace.hits.is_empty() {
                return bad("the trace has no hits".to_owned());
            }
            Ok(trace.into_sorted_hits())
        }
        _ => bad("traffic must have either kind, with hits and seed, or trace".to_owned()),
    }
}

async fn replay(
    policy: &Policy,
    trace: &[TraceHit],
    time_span: TimeSpan,
    pace: &Pace,
) -> Result<Replay, ApiError> {
    let clock = Clock::manual(Timestamp::default());
    let store = MemoryStore::new().capacity(capacity_for(trace.len()));
    let store = store.clock(clock.clone());
    let run = Run {
        policy,
        store: &store,
        clock,
    };
    let mut lookout = Lookout { pace, hits: 0 };
    let replayed = run
        .replay(trace, Some(time_span), None, &mut lookout)
        .await
        .map_err(|why| ApiError::bad_request(why.to_string()))?;
    if replayed.hits.len() < trace.len() {
        return Err(too_slow(replayed.hits.len(), trace.len()));
    }
    Ok(replayed)
}

/// When a simulation ends early.
pub(super) struct Pace {
    pub(super) deadline: Instant,
    pub(super) is_dropped: Arc<AtomicBool>,
}

impl Pace {
    fn is_over(&self) -> bool {
        self.is_dropped.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }
}

/// Ends a replay that is too slow, or whose caller has left.
struct Lookout<'a> {
    pace: &'a Pace,
    hits: u32,
}

impl ReplayOutput for Lookout<'_> {
    fn take(&mut self, _: &TraceHit, _: u64, _: &Decision) -> Result<ControlFlow<()>, CliError> {
        self.hits = self.hits.wrapping_add(1);
        Ok(
            if self.hits.is_multiple_of(HITS_PER_LOOK) && self.pace.is_over() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            },
        )
    }
}

fn too_slow(done: usize, all: usize) -> ApiError {
    ApiError::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "Simulation too long",
        format!(
            "a simulation takes at most 2 s, and this one had replayed {done} of {all} hits by then; send fewer hits, \
             or use `ratelimit-server simulate`"
        ),
    )
}

/// How many hits pass under one policy and not under the other.
fn passed_alone(one: &[bool], other: &[bool]) -> usize {
    let pairs = one.iter().zip(other);
    pairs.filter(|(one, other)| **one && !**other).count()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn experiment(hits: usize) -> Experiment {
        let hit = |place: usize| format!("{{\"t\":{place}}}\n");
        let trace: String = (0..hits).map(hit).collect();
        let body = serde_json::json!({
            "policies": [{"limits": "5/min"}],
            "traffic": {"trace": trace},
        });
        Experiment::new(serde_json::from_value(body).unwrap()).unwrap()
    }

    fn pace(time: Duration, is_dropped: bool) -> Pace {
        Pace {
            deadline: Instant::now() + time,
            is_dropped: Arc::new(AtomicBool::new(is_dropped)),
        }
    }

    #[tokio::test]
    async fn a_simulation_ends_at_its_deadline() {
        let why = experiment(200).run(&pace(Duration::ZERO, false)).await;

        let why = why.err().unwrap();
        assert!(why.detail().contains(" 64 of 200 hits"), "{why:?}");
    }

    #[tokio::test]
    async fn a_simulation_without_a_caller_ends() {
        let patient = Duration::from_secs(60);

        assert!(experiment(200).run(&pace(patient, true)).await.is_err());
        assert!(experiment(200).run(&pace(patient, false)).await.is_ok());
    }
}

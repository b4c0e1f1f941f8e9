//! Replays a trace on one policy.

use std::{ops::ControlFlow, time::Duration};

use ratelimit_core::{
    Clock, Decision, Outcome, Policy, RedisStore, Timestamp,
    store::{Hit, Store},
};

use super::{
    budget_line::BudgetLine,
    fleet::Fleet,
    frames::BudgetFrames,
    hit_outcome::HitOutcome,
    time_span::TimeSpan,
    trace::{TraceHit, budget_key},
};
use crate::{cli_error::CliError, micros::micros};

/// The decision of one hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplayedHit {
    pub(crate) at_micros: u64,
    pub(crate) cost: u64,
    pub(crate) outcome: HitOutcome,
    /// The delay of a hit that passed, or the time after which a denied one passes.
    pub(crate) wait_micros: u64,
}

impl ReplayedHit {
    fn new(at_micros: u64, cost: u64, decision: &Decision) -> ReplayedHit {
        let wait = match decision.outcome {
            Outcome::Allowed { delay } => delay,
            Outcome::Denied { retry_after } => retry_after,
            _ => Duration::ZERO,
        };
        ReplayedHit {
            at_micros,
            cost,
            outcome: HitOutcome::of(decision),
            wait_micros: micros(wait),
        }
    }
}

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// The hits of the trace in their order; fewer if the replay was ended early.
    pub(crate) hits: Vec<ReplayedHit>,
    pub(crate) budgets: Vec<BudgetLine>,
}

/// Receives the decisions of a replay.
pub(crate) trait ReplayOutput {
    /// Takes the decision of the next hit. `Break` ends the replay.
    fn take(
        &mut self,
        hit: &TraceHit,
        cost: u64,
        decision: &Decision,
    ) -> Result<ControlFlow<()>, CliError>;
}

/// One policy, its own store, and the clock of the store.
pub(crate) struct Run<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) store: &'a dyn Store,
    pub(crate) clock: Clock,
}

impl Run<'_> {
    /// Decides every hit, and samples the budgets if there is a time span.
    ///
    /// A `fleet` decides the hits in place of the store.
    ///
    /// Samples do not change a decision: they have cost 0 and write nothing, and none is later than the next hit.
    pub(crate) async fn replay(
        &self,
        trace: &[TraceHit],
        time_span: Option<TimeSpan>,
        mut fleet: Option<&mut Fleet>,
        output: &mut impl ReplayOutput,
    ) -> Result<Replay, CliError> {
        let mut frames =
            time_span.map(|time_span| BudgetFrames::new(time_span, self.policy, trace));
        let mut hits = Vec::with_capacity(trace.len());
        for hit in trace {
            self.sample_until(frames.as_mut(), hit.at_micros).await?;
            let cost = hit.cost.unwrap_or(self.policy.cost().get());
            let decision = match &mut fleet {
                Some(fleet) => fleet.check(self.policy, hit, cost).await?,
                None => self.check(&hit.key, hit.at_micros, cost).await?,
            };
            if let Some(frames) = &mut frames {
                frames.take(&hit.key, hit.at_micros, &decision);
            }
            hits.push(ReplayedHit::new(hit.at_micros, cost, &decision));
            if output.take(hit, cost, &decision)?.is_break() {
                break;
            }
        }
        self.sample_until(frames.as_mut(), u64::MAX).await?;
        Ok(Replay {
            hits,
            budgets: frames.map(BudgetFrames::into_budgets).unwrap_or_default(),
        })
    }

    /// Samples the budgets between two hits.
    async fn sample_until(
        &self,
        frames: Option<&mut BudgetFrames>,
        until: u64,
    ) -> Result<(), CliError> {
        let Some(frames) = frames else { return Ok(()) };
        while let Some(moment) = frames.due(until) {
            for key in frames.keys() {
                let seen = self.check(&key, moment, 0).await?;
                frames.take(&key, moment, &seen);
            }
        }
        Ok(())
    }

    async fn check(&self, key: &str, at_micros: u64, cost: u64) -> Result<Decision, CliError> {
        self.clock.set(Timestamp::from_micros(at_micros));
        let key = budget_key(key)?;
        let policy = self.policy.for_key(&key);
        let hit = Hit::new(policy, &key).cost(cost).with_slot_id();
        Ok(self.store.hit(hit).await?.decision)
    }

    /// Deletes the keys of `trace` from `redis`. A reset would write a value.
    pub(super) async fn clean_up(
        &self,
        redis: &RedisStore,
        trace: &[TraceHit],
    ) -> Result<(), CliError> {
        let mut keys: Vec<&str> = trace.iter().map(|hit| &*hit.key).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let key = budget_key(key)?;
            let policy = self.policy.for_key(&key);
            redis.delete(policy, &key.into()).await?;
        }
        Ok(())
    }
}

//! Replays a trace on one policy.

use std::{collections::BTreeSet, io::Write, time::Duration};

use ratelimit_core::{
    Clock, Decision, Key, Outcome, Policy, RedisStore, Timestamp,
    store::{Hit, Store},
};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    decimal,
    fleet::Fleet,
    frames::{BudgetFrames, BudgetLine, TimeSpan},
    report::{ChartHit, Fate, Progress, UntilClosed},
    trace::TraceHit,
};
use crate::{check_response::is_false, cli_error::CliError};

/// The printed decision of one hit.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplayLine<'a> {
    t: Box<RawValue>,
    key: &'a str,
    cost: u64,
    allowed: bool,
    limit: u64,
    remaining: u64,
    retry_after_micros: Option<u64>,
    reset_after_micros: u64,
    delay_micros: u64,
    impossible: bool,
    #[serde(skip_serializing_if = "is_false")]
    over: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
}

/// The result of a run that a chart shows.
#[derive(Debug, Default)]
pub(super) struct Replay {
    pub(super) hits: Vec<ChartHit>,
    pub(super) budgets: Vec<BudgetLine>,
}

/// One policy, its own store, and the clock of the store.
pub(super) struct Run<'a> {
    pub(super) policy: Policy,
    /// The field `policy` of its lines, if there are several runs.
    pub(super) label: Option<&'a str>,
    pub(super) store: &'a dyn Store,
    pub(super) clock: Clock,
}

impl Run<'_> {
    /// Prints the decision of every hit, and samples the budgets if there is a time span.
    ///
    /// A `fleet` decides the hits in place of the store.
    ///
    /// Samples do not change a decision: they have cost 0 and write nothing, and none is later than the next hit.
    pub(super) async fn replay(
        &self,
        trace: &[TraceHit],
        time_span: Option<TimeSpan>,
        mut fleet: Option<&mut Fleet>,
        out: &mut UntilClosed<impl Write>,
    ) -> Result<Replay, CliError> {
        let mut progress = Progress::new(trace.len());
        let mut frames =
            time_span.map(|time_span| BudgetFrames::new(time_span, &self.policy, trace));
        let mut hits = Vec::with_capacity(trace.len());
        for hit in trace {
            // The reader has left, and no chart needs the rest.
            if out.is_closed() && time_span.is_none() {
                break;
            }
            progress.show(hits.len());
            self.sample_until(frames.as_mut(), hit.at_micros).await?;
            let decision = match &mut fleet {
                Some(fleet) => fleet.check(&self.policy, hit).await?,
                None => self.check(&hit.key, hit.at_micros, hit.cost).await?,
            };
            serde_json::to_writer(&mut *out, &self.line(hit, &decision)?)?;
            out.write_all(b"\n")?;
            if let Some(frames) = &mut frames {
                frames.take(&hit.key, hit.at_micros, &decision);
            }
            hits.push(ChartHit {
                at_micros: hit.at_micros,
                fate: fate(&decision),
            });
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
        let key = Key::new(key)?;
        let hit = Hit::new(&self.policy, &key).cost(cost).with_slot_id();
        Ok(self.store.hit(hit).await?)
    }

    /// Deletes the keys of `trace` from `redis`. A reset would write a value.
    pub(super) async fn clean_up(
        &self,
        redis: &RedisStore,
        trace: &[TraceHit],
    ) -> Result<(), CliError> {
        let keys: BTreeSet<&str> = trace.iter().map(|hit| &*hit.key).collect();
        for key in keys {
            redis.delete(&self.policy, &Key::new(key)?.into()).await?;
        }
        Ok(())
    }

    fn line<'l>(
        &'l self,
        hit: &'l TraceHit,
        decision: &Decision,
    ) -> Result<ReplayLine<'l>, CliError> {
        let retry_after = match decision.outcome {
            Outcome::Denied { retry_after } => Some(retry_after),
            _ => None,
        };
        Ok(ReplayLine {
            t: RawValue::from_string(decimal::seconds(hit.at_micros))?,
            key: &hit.key,
            cost: hit.cost,
            allowed: decision.is_allowed(),
            limit: decision.limit,
            remaining: decision.remaining,
            retry_after_micros: retry_after.map(micros),
            reset_after_micros: micros(decision.reset_after),
            delay_micros: micros(decision.delay()),
            impossible: decision.outcome == Outcome::Impossible,
            over: decision.is_over,
            policy: self.label,
        })
    }
}

fn fate(decision: &Decision) -> Fate {
    match decision.outcome {
        Outcome::Allowed { delay } if delay.is_zero() => Fate::Admitted,
        Outcome::Allowed { .. } => Fate::Delayed,
        _ => Fate::Denied,
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

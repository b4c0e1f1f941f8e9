//! Replays a trace on one policy.

use std::{collections::BTreeSet, io::Write, time::Duration};

use ratelimit_core::{Clock, Decision, Hit, Key, Outcome, Policy, RedisStore, Store, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    decimal,
    film::{Budget, Film, Scene},
    trace::Asked,
};
use crate::{answer::is_false, failure::Failure};

/// What a hit is answered, as it is printed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
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

/// What became of a hit, as a chart shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Admitted,
    Delayed,
    Denied,
}

/// A hit in a chart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    pub(crate) at_micros: u64,
    pub(crate) fate: Fate,
}

/// What a chart shows of a run.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    pub(crate) hits: Vec<Shown>,
    pub(crate) budgets: Vec<Budget>,
}

/// One policy, a store for it alone, and the clock of that store.
pub(super) struct Run<'a> {
    pub(super) policy: Policy,
    /// How its lines are told from those of other runs.
    pub(super) label: Option<&'a str>,
    pub(super) store: &'a dyn Store,
    pub(super) clock: Clock,
}

impl Run<'_> {
    /// Prints what every hit is answered, and films the budgets where there is a scene.
    ///
    /// Looks change no answer: they write nothing, and none is later than the next hit.
    pub(super) async fn replay(
        &self,
        trace: &[Asked],
        scene: Option<Scene>,
        out: &mut impl Write,
    ) -> Result<Replayed, Failure> {
        let mut film = scene.map(|scene| Film::new(scene, &self.policy, trace));
        let mut hits = Vec::with_capacity(trace.len());
        for asked in trace {
            self.look_until(film.as_mut(), asked.at_micros).await?;
            let decision = self.ask(&asked.key, asked.at_micros, asked.cost).await?;
            serde_json::to_writer(&mut *out, &self.line(asked, &decision)?)?;
            out.write_all(b"\n")?;
            if let Some(film) = &mut film {
                film.take(&asked.key, asked.at_micros, &decision);
            }
            hits.push(Shown {
                at_micros: asked.at_micros,
                fate: fate(&decision),
            });
        }
        self.look_until(film.as_mut(), u64::MAX).await?;
        Ok(Replayed {
            hits,
            budgets: film.map(Film::into_budgets).unwrap_or_default(),
        })
    }

    /// Films what happens to the budgets up to a moment while nobody spends.
    async fn look_until(&self, film: Option<&mut Film>, until: u64) -> Result<(), Failure> {
        let Some(film) = film else { return Ok(()) };
        while let Some(moment) = film.due(until) {
            for key in film.keys() {
                let seen = self.ask(&key, moment, 0).await?;
                film.take(&key, moment, &seen);
            }
        }
        Ok(())
    }

    async fn ask(&self, key: &str, at_micros: u64, cost: u64) -> Result<Decision, Failure> {
        self.clock.set(Timestamp::from_micros(at_micros));
        let key = Key::new(key)?;
        let hit = Hit::new(&self.policy, &key).cost(cost).with_slot_id();
        Ok(self.store.hit(hit).await?)
    }

    /// Deletes what the hits of `trace` wrote in `redis`, key by key. A reset would leave a value behind.
    pub(super) async fn clean_up(
        &self,
        redis: &RedisStore,
        trace: &[Asked],
    ) -> Result<(), Failure> {
        let keys: BTreeSet<&str> = trace.iter().map(|asked| &*asked.key).collect();
        for key in keys {
            redis.delete(&self.policy, &Key::new(key)?.into()).await?;
        }
        Ok(())
    }

    fn line<'l>(&'l self, asked: &'l Asked, decision: &Decision) -> Result<Line<'l>, Failure> {
        let retry_after = match decision.outcome {
            Outcome::Denied { retry_after } => Some(retry_after),
            _ => None,
        };
        Ok(Line {
            t: RawValue::from_string(decimal::seconds(asked.at_micros))?,
            key: &asked.key,
            cost: asked.cost,
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

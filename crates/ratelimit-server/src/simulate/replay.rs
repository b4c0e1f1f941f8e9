//! Replays a trace on one policy.

use std::{collections::BTreeSet, io::Write, time::Duration};

use ratelimit_core::{Clock, Decision, Hit, Key, Outcome, Policy, Store, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{decimal, trace::Asked};
use crate::failure::Failure;

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
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
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
    /// Prints what every hit is answered.
    pub(super) async fn replay(
        &self,
        trace: &[Asked],
        out: &mut impl Write,
    ) -> Result<Vec<Shown>, Failure> {
        let mut shown = Vec::with_capacity(trace.len());
        for asked in trace {
            self.clock.set(Timestamp::from_micros(asked.at_micros));
            let key = Key::explicit(&asked.key)?;
            let hit = Hit::new(&self.policy, &key).cost(asked.cost);
            let decision = self.store.hit(hit).await?;
            serde_json::to_writer(&mut *out, &self.line(asked, &decision)?)?;
            out.write_all(b"\n")?;
            shown.push(Shown {
                at_micros: asked.at_micros,
                fate: fate(&decision),
                limit: decision.limit,
                remaining: decision.remaining,
            });
        }
        Ok(shown)
    }

    /// Deletes what the hits of `trace` wrote, key by key.
    pub(super) async fn clean_up(&self, trace: &[Asked]) -> Result<(), Failure> {
        let keys: BTreeSet<&str> = trace.iter().map(|asked| &*asked.key).collect();
        for key in keys {
            self.store.reset(&self.policy, &Key::explicit(key)?).await?;
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

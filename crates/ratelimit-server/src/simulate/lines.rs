//! The decisions of a replay as lines of JSON.

use std::{
    io::{self, Write},
    ops::ControlFlow,
};

use ratelimit_core::{Decision, Outcome};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{decimal, progress::Progress, replay::ReplayOutput, trace::TraceHit};
use crate::{check_response::is_false, cli_error::CliError, micros::micros};

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

/// Prints the decision of every hit of a run.
pub(super) struct ReplayLines<'a, W> {
    pub(super) out: &'a mut UntilClosed<W>,
    /// The field `policy`, if there are several runs.
    pub(super) policy: Option<&'a str>,
    /// Whether the replay goes on after the reader has left.
    pub(super) is_needed: bool,
    pub(super) progress: Progress,
}

impl<W: Write> ReplayOutput for ReplayLines<'_, W> {
    fn take(
        &mut self,
        hit: &TraceHit,
        cost: u64,
        decision: &Decision,
    ) -> Result<ControlFlow<()>, CliError> {
        let line = line(hit, cost, decision, self.policy)?;
        serde_json::to_writer(&mut *self.out, &line)?;
        self.out.write_all(b"\n")?;
        self.progress.advance();
        if self.out.is_closed() && !self.is_needed {
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }
}

fn line<'l>(
    hit: &'l TraceHit,
    cost: u64,
    decision: &Decision,
    policy: Option<&'l str>,
) -> Result<ReplayLine<'l>, CliError> {
    let retry_after = match decision.outcome {
        Outcome::Denied { retry_after } => Some(retry_after),
        _ => None,
    };
    Ok(ReplayLine {
        t: RawValue::from_string(decimal::seconds(hit.at_micros))?,
        key: &hit.key,
        cost,
        allowed: decision.is_allowed(),
        limit: decision.limit,
        remaining: decision.remaining,
        retry_after_micros: retry_after.map(micros),
        reset_after_micros: micros(decision.reset_after),
        delay_micros: micros(decision.delay()),
        impossible: decision.outcome == Outcome::Impossible,
        over: decision.is_over,
        policy,
    })
}

/// An output that ignores further text once its reader has closed the pipe, as `head` does.
pub(super) struct UntilClosed<W> {
    out: W,
    is_closed: bool,
}

impl<W: Write> UntilClosed<W> {
    pub(super) const fn new(out: W) -> UntilClosed<W> {
        UntilClosed {
            out,
            is_closed: false,
        }
    }

    pub(super) const fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl<W: Write> Write for UntilClosed<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.is_closed {
            return Ok(text.len());
        }
        match self.out.write(text) {
            Err(why) if why.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(text.len())
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_closed {
            return Ok(());
        }
        self.out.flush()
    }
}

//! The output of a replay besides its chart: lines, progress and a summary.

use std::{
    collections::BTreeSet,
    fmt,
    io::{self, IsTerminal as _, Write},
    time::{Duration, Instant},
};

use super::{decimal, trace::TraceHit};

const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// The outcome of a hit in a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Admitted,
    Delayed,
    Denied,
}

/// A hit in a chart.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChartHit {
    pub(super) at_micros: u64,
    pub(super) fate: Fate,
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

/// The progress on a terminal, unless the lines of the replay are printed there.
pub(super) struct Progress {
    hits: usize,
    shown: Option<Instant>,
}

impl Progress {
    pub(super) fn new(hits: usize) -> Progress {
        let is_shown = io::stderr().is_terminal() && !io::stdout().is_terminal();
        Progress {
            hits,
            shown: is_shown.then(Instant::now),
        }
    }

    /// Shows that `done` hits are replayed. It reads the clock once in 1,024 hits.
    pub(super) fn show(&mut self, done: usize) {
        if !done.is_multiple_of(1_024) {
            return;
        }
        if let Some(shown) = &mut self.shown
            && shown.elapsed() >= PROGRESS_INTERVAL
        {
            *shown = Instant::now();
            eprint!("\r{done} of {} hits", self.hits);
        }
    }
}

impl Drop for Progress {
    /// Clears the line.
    fn drop(&mut self) {
        if self.shown.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}

/// The summary of a run: `200 hits of 3 keys in 12.5s: 120 admitted, 0 delayed, 80 denied (40.0 %)`.
pub(super) struct Summary {
    hits: usize,
    keys: usize,
    span_micros: u64,
    admitted: usize,
    delayed: usize,
    denied: usize,
}

impl Summary {
    pub(super) fn new(trace: &[TraceHit], hits: &[ChartHit]) -> Summary {
        let trace = trace.get(..hits.len()).unwrap_or(trace);
        let keys: BTreeSet<&str> = trace.iter().map(|hit| &*hit.key).collect();
        let times = || hits.iter().map(|hit| hit.at_micros);
        let count = |fate| hits.iter().filter(|hit| hit.fate == fate).count();
        Summary {
            hits: hits.len(),
            keys: keys.len(),
            span_micros: times().max().unwrap_or(0) - times().min().unwrap_or(0),
            admitted: count(Fate::Admitted),
            delayed: count(Fate::Delayed),
            denied: count(Fate::Denied),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let per_mille = self.denied * 1_000 / self.hits.max(1);
        write!(
            f,
            "{} hit{} of {} key{} in {}s: {} admitted, {} delayed, {} denied ({}.{} %)",
            self.hits,
            plural(self.hits),
            self.keys,
            plural(self.keys),
            decimal::seconds(self.span_micros),
            self.admitted,
            self.delayed,
            self.denied,
            per_mille / 10,
            per_mille % 10,
        )
    }
}

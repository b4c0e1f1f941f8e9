//! The progress of a replay on a terminal.

use std::{
    io::{self, IsTerminal as _},
    time::{Duration, Instant},
};

const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// The progress on standard error, unless that is no terminal or the lines of the replay are printed there.
pub(super) struct Progress {
    done: usize,
    hits: usize,
    shown: Option<Instant>,
}

impl Progress {
    pub(super) fn new(hits: usize) -> Progress {
        let is_shown = io::stderr().is_terminal() && !io::stdout().is_terminal();
        Progress {
            done: 0,
            hits,
            shown: is_shown.then(Instant::now),
        }
    }

    /// Counts a hit. It reads the clock once in 1,024 hits.
    pub(super) fn advance(&mut self) {
        self.done += 1;
        if !self.done.is_multiple_of(1_024) {
            return;
        }
        if let Some(shown) = &mut self.shown
            && shown.elapsed() >= PROGRESS_INTERVAL
        {
            *shown = Instant::now();
            eprint!("\r{} of {} hits", self.done, self.hits);
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

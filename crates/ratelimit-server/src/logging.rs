//! Logging to standard error.
//!
//! A thread writes the lines. A reader of standard error that hangs therefore delays no request: lines that it does not read
//! are dropped and counted.

use std::{
    fmt::{self, Debug, Write as _},
    io::{self, IsTerminal as _, Write},
    sync::mpsc,
    thread,
    time::Duration,
};

use metrics::counter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{
    Layer as _, field::MakeExt as _, fmt::format::debug_fn, layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::{
    config::{Config, LogFormat},
    metrics::LOG_LINES_DROPPED,
};

/// The number of lines that wait for the thread that writes them. Further lines are dropped.
const MAX_LINES: usize = 10_000;

/// The time to write the lines that wait, at the end.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// How often the number of dropped lines is looked at.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// The least time between two lines about dropped lines.
const DROP_LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The thread that writes log lines. Dropping it waits until the lines are written, at most 2 s.
pub(crate) struct LogThread {
    guard: Option<WorkerGuard>,
    dropped: ErrorCounter,
}

/// Installs the global subscriber, unless the process already has one.
pub(crate) fn start(config: &Config) -> LogThread {
    let (thread, lines) = LogThread::spawn(io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(lines);
    let lines = match config.log_format {
        LogFormat::Text => {
            // A value may come from outside, and must not move the cursor or begin a line of its own.
            let fields = debug_fn(|line, field, value| match field.name() {
                "message" => write!(line, "{:?}", Escaped(value)),
                name => write!(
                    line,
                    "{}={:?}",
                    name.trim_start_matches("r#"),
                    Escaped(value)
                ),
            });
            let ansi = io::stderr().is_terminal();
            lines
                .fmt_fields(fields.delimited(" "))
                .with_ansi(ansi)
                .boxed()
        }
        // The current span only: it is in the list of spans a second time.
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .boxed(),
    };
    let filtered = lines.with_filter(config.log.clone());
    // An error means that the process already has a subscriber, which receives the events.
    let _ = tracing_subscriber::registry().with(filtered).try_init();
    thread
}

impl LogThread {
    /// A thread that writes lines to `out`, and the writer that gives it lines.
    fn spawn(out: impl Write + Send + 'static) -> (LogThread, NonBlocking) {
        let builder = NonBlockingBuilder::default()
            .lossy(true)
            .buffered_lines_limit(MAX_LINES)
            .thread_name("log");
        let (lines, guard) = builder.finish(out);
        let thread = LogThread {
            guard: Some(guard),
            dropped: lines.error_counter(),
        };
        (thread, lines)
    }

    /// Counts the dropped lines, and logs their number when lines are written again; never returns.
    pub(crate) fn count_dropped(&self) -> impl Future<Output = ()> + Send + use<> {
        let counter = self.dropped.clone();
        count_dropped(move || counter.dropped_lines() as u64)
    }
}

async fn count_dropped(dropped: impl Fn() -> u64) {
    let metric = counter!(LOG_LINES_DROPPED);
    metric.absolute(0);
    let mut ticks = tokio::time::interval(COUNT_INTERVAL);
    let (mut before, mut logged) = (0, 0);
    let mut logged_at = None;
    loop {
        ticks.tick().await;
        let now = dropped();
        metric.absolute(now);
        let has_ended = now == std::mem::replace(&mut before, now);
        let is_due =
            logged_at.is_none_or(|at: tokio::time::Instant| at.elapsed() >= DROP_LINE_INTERVAL);
        if now > logged && has_ended && is_due {
            logged_at = Some(tokio::time::Instant::now());
            let lines = now - logged;
            tracing::warn!(
                lines,
                "log lines were dropped: standard error was not read fast enough"
            );
            // Otherwise this line was dropped as well.
            if dropped() == now {
                logged = now;
            }
        }
    }
}

impl Drop for LogThread {
    /// Writes the lines that wait. In a thread, because the guard prints if that takes too long, which may block as well.
    fn drop(&mut self) {
        let guard = self.guard.take();
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            drop(guard);
            // An error means that the time is over.
            let _ = done.send(());
        });
        let _ = is_done.recv_timeout(FLUSH_WITHIN);
    }
}

/// A value with its control characters escaped.
struct Escaped<'a>(&'a dyn Debug);

impl Debug for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(EscapeWriter(f), "{:?}", self.0)
    }
}

struct EscapeWriter<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for EscapeWriter<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(char::is_control) {
            let Some(last) = part.chars().next_back().filter(|last| last.is_control()) else {
                return self.0.write_str(part);
            };
            self.0.write_str(&part[..part.len() - last.len_utf8()])?;
            write!(self.0, "{}", last.escape_default())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    };

    use super::*;

    #[test]
    fn control_characters_of_values_are_escaped() {
        let value = format_args!("ERR \u{1b}[2J a\r\nb\u{9b}31m é").to_string();

        let shown = format!("{:?}", Escaped(&format_args!("{value}")));

        assert_eq!(shown, "ERR \\u{1b}[2J a\\r\\nb\\u{9b}31m é");
    }

    /// A writer that blocks in its first call until it is released.
    struct Blocked {
        released: mpsc::Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Blocked {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // An error means that the sender is gone.
            let _ = self.released.recv();
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_beyond_the_queue_are_dropped_and_counted_and_the_others_are_written_at_the_end() {
        let (release, released) = mpsc::channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let (thread, mut lines) = LogThread::spawn(Blocked {
            released,
            written: Arc::clone(&written),
        });

        for _ in 0..MAX_LINES + 100 {
            lines.write_all(b"x").unwrap();
        }

        // One line may be with the writer already.
        let dropped = thread.dropped.dropped_lines();
        assert!((99..=100).contains(&dropped), "{dropped}");
        drop(release);
        drop(thread);
        assert_eq!(written.lock().unwrap().len(), MAX_LINES + 100 - dropped);
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_lines_are_logged_once_they_are_written_again() {
        let text = Arc::new(Mutex::new(String::new()));
        let dropped = Arc::new(AtomicU64::new(0));
        let _guard = tracing::subscriber::set_default(
            tracing_subscriber::registry().with(Lines(Arc::clone(&text))),
        );
        let counts = Arc::clone(&dropped);
        tokio::spawn(count_dropped(move || counts.load(Ordering::Relaxed)));
        let wait = |seconds| tokio::time::sleep(Duration::from_secs(seconds));

        wait(3).await;
        assert_eq!(*text.lock().unwrap(), "");
        dropped.store(7, Ordering::Relaxed);
        wait(3).await;
        assert_eq!(*text.lock().unwrap(), "7 ");
        dropped.store(9, Ordering::Relaxed);
        wait(4).await;
        assert_eq!(*text.lock().unwrap(), "7 ", "not yet");
        wait(10).await;
        assert_eq!(*text.lock().unwrap(), "7 2 ");
    }

    /// Collects the field `lines` of all events.
    struct Lines(Arc<Mutex<String>>);

    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Lines {
        fn on_event(
            &self,
            event: &tracing::Event<'_>,
            _: tracing_subscriber::layer::Context<'_, S>,
        ) {
            struct Visitor<'a>(&'a mut String);
            impl tracing::field::Visit for Visitor<'_> {
                fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
                    if field.name() == "lines" {
                        let _ = write!(self.0, "{value:?} ");
                    }
                }
            }
            event.record(&mut Visitor(&mut self.0.lock().unwrap()));
        }
    }
}

//! The command line of `simulate`, and its stores.

use std::{
    convert::Infallible,
    fs::File,
    hash::{BuildHasher as _, RandomState},
    io::{self, BufReader, Write},
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use clap::Args;
use ratelimit_core::{
    Clock, InvalidPolicy, MemoryStore, Policy, RedisConfig, RedisStore, Throttle, Timestamp,
    store::Store,
};

use super::{
    chart::{self, ChartRun},
    fleet::{Fleet, passed_exactly},
    lines::{ReplayLines, UntilClosed},
    policies::{SimulatedPolicy, parse_throttle},
    progress::Progress,
    replay::{Replay, Run},
    summary::Summary,
    time_span::TimeSpan,
    trace::{Trace, TraceFormat, TraceHit, TraceReader},
    traffic::Traffic,
};
use crate::{cli_error::CliError, config::Span};

/// Timeout of a Redis call. It is long, because a replay does not measure latency.
const TIMEOUT: Duration = Duration::from_secs(20);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

const HITS: u64 = 200;

const SEED: u64 = 1;

const ROUND_TRIP: Duration = Duration::from_millis(1);

/// Replays a trace on a virtual clock, and prints what every hit would be answered.
///
/// A trace has a JSON object on each line: {"t":0.5,"key":"a","cost":1}, with t in seconds, exact to
/// the microsecond. Without a key it is "default", without a cost that of the policy; a cost of 0
/// looks. Or it is an access log in the common or combined format, whose clients are the keys. Hits are
/// replayed in the order of their time. For each hit one line is printed, with "over" where it passed
/// beyond a soft limit; with several policies, the whole trace is replayed for each in turn, and
/// "policy" says for which. A summary of each run is printed to standard error.
#[derive(Args, Clone, Debug)]
pub struct Simulate {
    /// The limits of a policy, joined by ";", as in `token_bucket 10/s burst 100`; repeatable
    #[arg(long, required_unless_present = "policy", value_name = "LIMITS", value_parser = limits)]
    limit: Vec<String>,

    /// The throttle above the limits: `hard`, or `soft 10%` for a tenth more [default: hard]
    #[arg(long, value_name = "MODE", value_parser = parse_throttle)]
    throttle: Option<Throttle>,

    /// A configuration file of the server with the policies of --policy
    #[arg(long, value_name = "FILE", requires = "policy", conflicts_with_all = ["limit", "throttle"])]
    config: Option<PathBuf>,

    /// A policy of --config, with its limits, throttle, cost and tiers; repeatable
    #[arg(long, value_name = "NAME", requires = "config")]
    policy: Vec<String>,

    /// Where budgets live: memory, or a Redis in which nothing else is touched
    #[arg(long, default_value = "memory", value_name = "memory|URL")]
    store: StoreChoice,

    /// The share of each limit that instances prefetch, as in `5%`; the summary says what it saves
    #[arg(long, value_name = "SHARE", value_parser = share, conflicts_with = "chart")]
    prefetch: Option<u32>,

    /// How many instances prefetch, and take the hits in turn [default: 1]
    #[arg(long, value_name = "N", requires = "prefetch", value_parser = clap::value_parser!(u32).range(1..=64))]
    instances: Option<u32>,

    /// How long a prefetch call takes [default: 1ms]
    #[arg(long, value_name = "TIME", requires = "prefetch")]
    round_trip: Option<Span>,

    /// How long to wait for that Redis [default: 5s]
    #[arg(long, value_name = "TIME")]
    connect_timeout: Option<Span>,

    /// Writes a drawing of what happened
    #[arg(long, value_name = "FILE.svg")]
    chart: Option<PathBuf>,

    /// Makes a trace up, for the first limit
    #[arg(long, value_name = "KIND")]
    traffic: Option<Traffic>,

    /// Which of the traces that can be made up [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// How many hits are made up [default: 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    hits: Option<u64>,

    /// The format of the traces; without it, the first line of each tells
    #[arg(long, value_name = "FORMAT", conflicts_with = "traffic")]
    trace_format: Option<TraceFormat>,

    /// Counts the lines that cannot be read, in place of an error
    #[arg(long, conflicts_with = "traffic")]
    skip_invalid: bool,

    /// The files with the trace; - is standard input
    #[arg(required_unless_present = "traffic", conflicts_with = "traffic")]
    trace: Vec<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum StoreChoice {
    Memory,
    Redis(String),
}

impl FromStr for StoreChoice {
    type Err = Infallible;

    /// An error of clap quotes the whole text with its password, so an address is checked later.
    fn from_str(text: &str) -> Result<StoreChoice, Infallible> {
        Ok(match text {
            "memory" => StoreChoice::Memory,
            url => StoreChoice::Redis(url.to_owned()),
        })
    }
}

fn limits(text: &str) -> Result<String, InvalidPolicy> {
    Policy::parse("simulate", text).map(|_| text.to_owned())
}

fn share(text: &str) -> Result<u32, String> {
    let percent = text.strip_suffix('%').and_then(|text| text.parse().ok());
    percent.ok_or_else(|| "expected a percentage as in `5%`".to_owned())
}

impl Simulate {
    /// Prints the decision of every hit to `out`, a summary to standard error, and writes the chart.
    ///
    /// A reader that closes the pipe ends the lines, and the replay if no chart is wanted.
    ///
    /// # Errors
    ///
    /// Fails if the trace is invalid, the store does not answer, or an output cannot be written.
    pub async fn run(&self, out: &mut impl Write) -> Result<(), CliError> {
        let mut out = UntilClosed::new(out);
        let simulated = self.policies()?;
        if self.prefetch.is_some() && self.store != StoreChoice::Memory {
            return Err(
                "--prefetch is simulated in memory, with --round-trip; leave --store out".into(),
            );
        }
        if self.connect_timeout.is_some() && self.store == StoreChoice::Memory {
            return Err("--connect-timeout has no effect without a Redis server in --store".into());
        }
        let trace = self.trace(&simulated[0].policy)?;
        let clock = Clock::manual(Timestamp::default());
        let redis = self.redis_store(clock.clone()).await?;
        let several = simulated.len() > 1;
        let policies: Vec<Policy> = simulated.iter().map(|one| one.policy.clone()).collect();
        let time_span = TimeSpan::of(&trace, &policies);
        let mut drawn = Vec::new();
        for simulated in &simulated {
            let label = &simulated.label;
            let memory = MemoryStore::new().capacity(capacity_for(trace.len()));
            let memory = memory.clock(clock.clone());
            let store: &dyn Store = match &redis {
                Some(redis) => redis,
                None => &memory,
            };
            let run = Run {
                policy: &simulated.policy,
                store,
                clock: clock.clone(),
            };
            let mut lines = ReplayLines {
                out: &mut out,
                policy: several.then_some(label),
                is_needed: self.chart.is_some(),
                progress: Progress::new(trace.len()),
            };
            let filmed = self.chart.as_ref().map(|_| time_span);
            let mut fleet = self.fleet(&memory, &clock);
            let fleet_mut = fleet.as_mut();
            let replayed =
                replay(&run, redis.as_ref(), &trace, filmed, fleet_mut, &mut lines).await?;
            drop(lines);
            if out.is_closed() && filmed.is_none() {
                return Ok(());
            }
            let summary = Summary::new(&trace, &replayed);
            eprintln!("{label}: {summary}");
            if let Some(fleet) = &fleet {
                let replayed = &trace[..replayed.hits.len()];
                let exact = passed_exactly(run.policy, replayed, capacity_for(trace.len())).await?;
                eprintln!("{label}: {fleet}; an exact limiter lets {exact} pass");
            }
            drawn.push(ChartRun {
                title: &simulated.title,
                policy: &simulated.policy,
                replay: replayed,
                summary,
            });
        }
        if let Some(path) = &self.chart {
            let svg = chart::draw(time_span, &drawn);
            std::fs::write(path, svg).map_err(|why| format!("{}: {why}", path.display()))?;
        }
        Ok(())
    }

    /// The policies of `--limit`, or of `--config` and `--policy`.
    fn policies(&self) -> Result<Vec<SimulatedPolicy>, CliError> {
        let policies: Vec<SimulatedPolicy> = if let Some(path) = &self.config {
            SimulatedPolicy::of_file(path, &self.policy)?
        } else {
            let throttle = self.throttle.clone().unwrap_or_default();
            let texts = self.limit.iter().enumerate();
            let policies = texts
                .map(|(place, text)| SimulatedPolicy::of_limits(place, text, throttle.clone()));
            policies.collect::<Result<_, _>>()?
        };
        match self.prefetch {
            Some(share) => policies
                .into_iter()
                .map(|policy| policy.with_prefetch(share))
                .collect(),
            None => Ok(policies),
        }
    }

    /// The instances of `--prefetch`, over the store of one run.
    fn fleet(&self, memory: &MemoryStore, clock: &Clock) -> Option<Fleet> {
        self.prefetch?;
        let round_trip = self.round_trip.map_or(ROUND_TRIP, |span| span.0);
        let instances = self.instances.unwrap_or(1);
        Some(Fleet::new(memory.clone(), clock, instances, round_trip))
    }

    /// The hits in the order of their times. Notes on standard error say how many lines were late or skipped.
    fn trace(&self, policy: &Policy) -> Result<Vec<TraceHit>, CliError> {
        if let Some(traffic) = self.traffic {
            let (hits, seed) = (self.hits.unwrap_or(HITS), self.seed.unwrap_or(SEED));
            return Ok(traffic.hits(&policy.limits()[0], hits, seed)?);
        }
        if self.hits.is_some() || self.seed.is_some() {
            return Err("--hits and --seed have no effect without --traffic".into());
        }
        let reader = TraceReader {
            format: self.trace_format,
            skips_invalid: self.skip_invalid,
            max_hits: usize::MAX,
        };
        let mut whole = Trace::default();
        for path in &self.trace {
            let trace = if path == Path::new("-") {
                reader.read(io::stdin().lock())?
            } else {
                let name = path.display();
                let file = File::open(path).map_err(|why| format!("{name}: {why}"))?;
                let read = reader.read(BufReader::new(file));
                read.map_err(|why| format!("{name}: {why}"))?
            };
            print_notes(&trace);
            whole.hits.extend(trace.hits);
        }
        Ok(whole.into_sorted_hits())
    }

    /// The Redis store of `--store`, under a random key prefix.
    async fn redis_store(&self, clock: Clock) -> Result<Option<RedisStore>, CliError> {
        let StoreChoice::Redis(url) = &self.store else {
            return Ok(None);
        };
        let random = RandomState::new().hash_one(std::process::id());
        let config = RedisConfig::new(url)
            .map_err(|why| format!("--store is neither memory nor a Redis server: {why}"))?
            .prefix(&format!("simulate-{random:016x}"))?
            .timeout(TIMEOUT)
            .clock(clock);
        let store = RedisStore::new(config);
        let within = self.connect_timeout.map_or(CONNECT_TIMEOUT, |span| span.0);
        if !store.wait_connected(within).await {
            return Err("the Redis server does not answer".into());
        }
        store.delete_probe_key().await?;
        Ok(Some(store))
    }
}

fn print_notes(trace: &Trace) {
    let late = trace.late_count();
    if late > 0 {
        let lines = if late == 1 { "line was" } else { "lines were" };
        eprintln!(
            "note: {late} {lines} earlier than the line before; hits are replayed by their time"
        );
    }
    if let Some(first) = trace.skipped.first() {
        let count = trace.skipped_count;
        let lines = if count == 1 { "line was" } else { "lines were" };
        eprintln!("note: {count} {lines} skipped, the first: {first}");
    }
}

/// A capacity at which no key of a trace is evicted: a policy keeps up to eight entries for a key, and keys are not
/// divided evenly among the shards of the store.
pub(crate) fn capacity_for(hits: usize) -> usize {
    const ENTRIES_PER_HIT: usize = 8;
    const MIN_CAPACITY: usize = 1_000_000;
    hits.saturating_mul(2 * ENTRIES_PER_HIT).max(MIN_CAPACITY)
}

/// Replays one run, then deletes its keys from `redis`, also after an error or Ctrl-C.
async fn replay(
    run: &Run<'_>,
    redis: Option<&RedisStore>,
    trace: &[TraceHit],
    time_span: Option<TimeSpan>,
    fleet: Option<&mut Fleet>,
    lines: &mut ReplayLines<'_, impl Write>,
) -> Result<Replay, CliError> {
    let replayed = tokio::select! {
        replayed = run.replay(trace, time_span, fleet, lines) => replayed,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
    };
    let cleaned = match redis {
        Some(redis) => run.clean_up(redis, trace).await,
        None => Ok(()),
    };
    replayed.and_then(|shown| cleaned.map(|()| shown))
}

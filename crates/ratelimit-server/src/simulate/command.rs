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
    chart,
    fleet::{Fleet, passed_exactly},
    frames::TimeSpan,
    replay::{Replay, Run},
    report::{Summary, UntilClosed},
    trace::{self, TraceHit},
    traffic::Traffic,
};
use crate::{cli_error::CliError, config::Span};

/// Timeout of a Redis call. It is long, because a replay does not measure latency.
const TIMEOUT: Duration = Duration::from_secs(20);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

const ROUND_TRIP: Duration = Duration::from_millis(1);

/// Replays a trace on a virtual clock, and prints what every hit would be answered.
///
/// A trace has a JSON object on each line: {"t":0.5,"key":"a","cost":1}, with t in seconds, exact to
/// the microsecond. Without a key it is "default", without a cost 1; a cost of 0 looks. Hits are
/// replayed in the order of their time. For each hit one line is printed, with "over" where it passed
/// beyond a soft limit; with several --limit, the whole trace is replayed for each in turn, and
/// "policy" says for which. A summary of each run is printed to standard error.
#[derive(Args, Clone, Debug)]
pub struct Simulate {
    /// The limits of a policy, joined by ";", as in `token_bucket 10/s burst 100`; repeatable
    #[arg(long, required = true, value_name = "LIMITS", value_parser = limits)]
    limit: Vec<String>,

    /// The throttle above the limits: `hard`, or `soft 10%` for a tenth more [default: hard]
    #[arg(long, value_name = "MODE", value_parser = throttle)]
    throttle: Option<Throttle>,

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

    /// Which of the traces that can be made up
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// How many hits are made up
    #[arg(long, default_value_t = 200, value_name = "N")]
    hits: u64,

    /// The file with the trace; - is standard input
    #[arg(required_unless_present = "traffic", conflicts_with = "traffic")]
    trace: Option<PathBuf>,
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

fn throttle(text: &str) -> Result<Throttle, String> {
    let expected = || "expected `hard`, or `soft` and a percentage as in `soft 10%`".to_owned();
    if text == "hard" {
        return Ok(Throttle::Hard);
    }
    let percent = text
        .strip_prefix("soft ")
        .and_then(|rest| rest.strip_suffix('%'));
    let percent = percent.ok_or_else(expected)?.parse();
    percent
        .map(|percent| Throttle::Soft { percent })
        .map_err(|_| expected())
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
        let throttle = self.throttle.clone().unwrap_or_default();
        let policies = self.limit.iter().enumerate();
        let policies: Vec<Policy> = policies
            .map(|(place, text)| {
                let policy = Policy::parse(&format!("simulate-{}", place + 1), text)?;
                let policy = policy.with_throttle(throttle.clone())?;
                match self.prefetch {
                    Some(share) => policy.with_prefetch(share),
                    None => Ok(policy),
                }
            })
            .collect::<Result<_, _>>()?;
        if self.prefetch.is_some() && self.store != StoreChoice::Memory {
            return Err(
                "--prefetch is simulated in memory, with --round-trip; leave --store out".into(),
            );
        }
        let trace = self.trace(&policies[0])?;
        let clock = Clock::manual(Timestamp::default());
        let redis = self.redis_store(clock.clone()).await?;
        let several = policies.len() > 1;
        let time_span = TimeSpan::of(&trace, &policies);
        let mut drawn = Vec::new();
        for (policy, text) in policies.into_iter().zip(&self.limit) {
            let memory = MemoryStore::new().capacity(capacity_for(&trace));
            let memory = memory.clock(clock.clone());
            let store: &dyn Store = match &redis {
                Some(redis) => redis,
                None => &memory,
            };
            let run = Run {
                policy,
                label: several.then_some(text),
                store,
                clock: clock.clone(),
            };
            let filmed = self.chart.as_ref().map(|_| time_span);
            let mut fleet = self.fleet(&memory, &clock);
            let fleet_mut = fleet.as_mut();
            let replayed =
                replay(&run, redis.as_ref(), &trace, filmed, fleet_mut, &mut out).await?;
            if out.is_closed() && filmed.is_none() {
                return Ok(());
            }
            eprintln!("{text}: {}", Summary::new(&trace, &replayed.hits));
            if let Some(fleet) = &fleet {
                let replayed = &trace[..replayed.hits.len()];
                let exact = passed_exactly(&run.policy, replayed, capacity_for(&trace)).await?;
                eprintln!("{text}: {fleet}; an exact limiter lets {exact} pass");
            }
            drawn.push((&**text, replayed));
        }
        if let Some(path) = &self.chart {
            let svg = chart::draw(time_span, &drawn);
            std::fs::write(path, svg).map_err(|why| format!("{}: {why}", path.display()))?;
        }
        Ok(())
    }

    /// The instances of `--prefetch`, over the store of one run.
    fn fleet(&self, memory: &MemoryStore, clock: &Clock) -> Option<Fleet> {
        self.prefetch?;
        let round_trip = self.round_trip.map_or(ROUND_TRIP, |span| span.0);
        let instances = self.instances.unwrap_or(1);
        Some(Fleet::new(memory.clone(), clock, instances, round_trip))
    }

    fn trace(&self, policy: &Policy) -> Result<Vec<TraceHit>, CliError> {
        if let Some(traffic) = self.traffic {
            return Ok(traffic.hits(&policy.limits()[0], self.hits, self.seed));
        }
        let path = self.trace.as_deref().unwrap_or(Path::new("-"));
        if path == Path::new("-") {
            return Ok(trace::read(io::stdin().lock())?);
        }
        let file = File::open(path).map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(trace::read(BufReader::new(file))?)
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

/// A capacity at which no key is evicted: a policy keeps up to eight entries for a key, and keys are not divided evenly
/// among the shards of the store.
fn capacity_for(trace: &[TraceHit]) -> usize {
    const ENTRIES_PER_HIT: usize = 8;
    const MIN_CAPACITY: usize = 1_000_000;
    trace
        .len()
        .saturating_mul(2 * ENTRIES_PER_HIT)
        .max(MIN_CAPACITY)
}

/// Replays one run, then deletes its keys from `redis`, also after an error or Ctrl-C.
async fn replay(
    run: &Run<'_>,
    redis: Option<&RedisStore>,
    trace: &[TraceHit],
    time_span: Option<TimeSpan>,
    fleet: Option<&mut Fleet>,
    out: &mut UntilClosed<impl Write>,
) -> Result<Replay, CliError> {
    let replayed = tokio::select! {
        replayed = run.replay(trace, time_span, fleet, out) => replayed,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
    };
    let cleaned = match redis {
        Some(redis) => run.clean_up(redis, trace).await,
        None => Ok(()),
    };
    replayed.and_then(|shown| cleaned.map(|()| shown))
}

//! Checks a second through one Redis.

use std::sync::Arc;

use redis::io::tcp::TcpSettings;

use super::{
    Plan,
    duration::exact,
    load::{KEYS, LoadClient, LoadResult, run_load, runtime},
};
use crate::{
    peer::naive::{self, Naive},
    report::{Chart, Goal, Report, Row, Scale, Series, Spread},
    server::RedisServer,
};

const TASKS: [usize; 6] = [1, 4, 16, 64, 256, 1_024];
const SUBJECTS: [&str; 4] = [
    "ours",
    "plain multiplexed connection",
    "bb8 with the naive script",
    "plain multiplexed connection with TCP_NODELAY",
];
/// The subjects of the charts. The last one is measured only where Nagle's algorithm matters.
const CHARTED: [usize; 3] = [0, 1, 2];
const WITH_NODELAY: usize = 3;

/// One number of a turn.
type Field = fn(&LoadResult) -> f64;

const PER_SECOND: Field = |result| result.per_second;

/// The results of every subject, turn by turn, at one number of tasks.
struct LoadLevel {
    tasks: usize,
    turns: [Vec<LoadResult>; 4],
}

impl LoadLevel {
    fn spread(&self, subject: usize, of: Field) -> Spread {
        let values: Vec<f64> = self.turns[subject].iter().map(of).collect();
        Spread::of(&values)
    }
}

pub(super) fn run(plan: Plan, report: &mut Report) {
    let server = RedisServer::start(&[]);
    let levels = TASKS.map(|tasks| measure(plan, &server.url(), tasks));
    for level in &levels {
        rows_of(level, report);
    }
    report.charts.push(checks(&levels));
    report.charts.push(waits(&levels));
    report.charts.push(percentiles(&levels));
}

fn measure(plan: Plan, url: &str, tasks: usize) -> LoadLevel {
    let runtime = runtime();
    let (ours, unbatched, with_nodelay) = runtime.block_on(async {
        (
            LoadClient::connected(url).await,
            LoadClient::plain(url, TcpSettings::default()).await,
            LoadClient::plain(url, TcpSettings::default().set_nodelay(true)).await,
        )
    });
    let pool = runtime.block_on(naive::pool(url));
    let script = Arc::new(Naive::new());
    let names: Arc<[String]> = (0..KEYS).map(|key| format!("naive:{key}")).collect();
    let mut turns = [const { Vec::new() }; 4];
    for _ in 0..plan.rounds() {
        let drive = |client: &LoadClient| {
            let client = client.clone();
            let check = move |key| client.clone().ask(key);
            runtime.block_on(run_load(tasks, plan.turn(), check))
        };
        turns[0].push(drive(&ours));
        turns[1].push(drive(&unbatched));
        if matches!(tasks, 4 | 16) {
            turns[WITH_NODELAY].push(drive(&with_nodelay));
        }
        let (pool, script, names) = (pool.clone(), Arc::clone(&script), Arc::clone(&names));
        let check = move |key: usize| {
            let (pool, script, names) = (pool.clone(), Arc::clone(&script), Arc::clone(&names));
            async move {
                let mut connection = pool.get().await.expect("a connection is free in time");
                script.ask(&mut *connection, &names[key]).await;
            }
        };
        turns[2].push(runtime.block_on(run_load(tasks, plan.turn(), check)));
    }
    LoadLevel { tasks, turns }
}

fn rows_of(level: &LoadLevel, report: &mut Report) {
    let tasks = level.tasks;
    let per_second = |subject| level.spread(subject, |result| result.per_second);
    let row = |subject: usize| {
        let what = format!("Redis, {tasks} tasks");
        Row::new(what, "checks/s", per_second(0)).beside(SUBJECTS[subject], per_second(subject))
    };
    let plain = match tasks {
        1 | 16 => row(1).goal(Goal::RatioAtLeast(0.95)),
        256 => row(1).goal(Goal::RatioAtLeast(2.0)),
        _ => row(1),
    };
    let naive = match tasks {
        256 => row(2).goal(Goal::RatioAtLeast(8.0)),
        _ => row(2),
    };
    report.rows.extend([plain, naive]);
    if !level.turns[WITH_NODELAY].is_empty() {
        report.rows.push(row(WITH_NODELAY));
    }

    let p99 = |goal| {
        let what = format!("Redis, {tasks} tasks, 99th percentile");
        let beside = level.spread(1, |result| result.p99);
        let ours = level.spread(0, |result| result.p99);
        Row::new(what, "ms", ours)
            .beside(SUBJECTS[1], beside)
            .goal(goal)
    };
    match tasks {
        1 => report.rows.push(p99(Goal::AtMost(1.0))),
        256 => {
            let what = "one instance over one Redis core";
            let row = Row::new(what, "checks/s", per_second(0));
            report.rows.push(row.goal(Goal::AtLeast(100_000.0)));
            report.rows.push(p99(Goal::RatioAtMost(0.5)));
        }
        _ => {}
    }
}

fn checks(levels: &[LoadLevel]) -> Chart {
    let lines = CHARTED.map(|subject| (named(subject), subject, PER_SECOND));
    Chart {
        name: "tasks".into(),
        title: "Checks a second through one Redis".to_owned(),
        x: "tasks that ask at once".into(),
        y: "checks/s".into(),
        scale: Scale::Linear,
        series: series(levels, lines),
    }
}

fn waits(levels: &[LoadLevel]) -> Chart {
    let p99: Field = |result| result.p99;
    let lines = CHARTED.map(|subject| (named(subject), subject, p99));
    Chart {
        name: "waits".into(),
        title: "99th percentile of a check through Redis".to_owned(),
        x: "tasks that ask at once".into(),
        y: "ms".into(),
        scale: Scale::Factors,
        series: series(levels, lines),
    }
}

fn percentiles(levels: &[LoadLevel]) -> Chart {
    let lines: [(&str, usize, Field); 3] = [
        ("p50", 0, |result| result.p50),
        ("p99", 0, |result| result.p99),
        ("p99.9", 0, |result| result.p999),
    ];
    Chart {
        name: "percentiles".into(),
        title: "How long a check through Redis takes".to_owned(),
        x: "tasks that ask at once".into(),
        y: "ms".into(),
        scale: Scale::Factors,
        series: series(levels, lines),
    }
}

/// The name of a subject in charts.
fn named(subject: usize) -> &'static str {
    match subject {
        0 => "this limiter",
        subject => SUBJECTS[subject],
    }
}

fn series(levels: &[LoadLevel], lines: [(&'static str, usize, Field); 3]) -> Vec<Series> {
    let series = lines.into_iter().map(|(name, subject, of)| {
        let points = levels.iter();
        let points = points.map(|level| (exact(level.tasks), level.spread(subject, of)));
        Series::of_spreads(name, points.collect())
    });
    series.collect()
}

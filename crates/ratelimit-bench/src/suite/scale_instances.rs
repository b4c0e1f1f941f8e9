//! How one Redis serves several instances of a service.

use super::{
    Plan,
    duration::exact,
    load::{LoadClient, run_load, runtime},
};
use crate::{
    report::{Chart, Report, Scale, Series, Spread},
    server::RedisServer,
};

const INSTANCES: [usize; 5] = [1, 2, 4, 8, 16];

/// Shared by all instances, so that only their number changes.
const TASKS: usize = 256;

pub(super) fn run(plan: Plan, report: &mut Report) {
    let server = RedisServer::start(&[]);
    let points = INSTANCES.map(|instances| (exact(instances), measure(plan, &server, instances)));
    report.charts.push(Chart {
        name: "instances".into(),
        title: format!("Checks a second through one Redis, {TASKS} tasks in all"),
        x: "instances, each with its own connection".into(),
        y: "checks/s".into(),
        scale: Scale::Linear,
        series: vec![Series::new("this limiter", points.to_vec())],
    });
}

fn measure(plan: Plan, server: &RedisServer, instances: usize) -> f64 {
    let runtime = runtime();
    let limiters: Vec<LoadClient> = runtime.block_on(async {
        let mut limiters = Vec::new();
        for _ in 0..instances {
            limiters.push(LoadClient::connected(&server.url()).await);
        }
        limiters
    });
    let turns = (0..plan.rounds()).map(|_| {
        let limiters = limiters.clone();
        let ask = move |key: usize| limiters[key % limiters.len()].clone().ask(key);
        runtime
            .block_on(run_load(TASKS, plan.turn(), ask))
            .per_second
    });
    Spread::of(&turns.collect::<Vec<_>>()).median
}

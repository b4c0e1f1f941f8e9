//! How work spreads over the shards of a cluster.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    Plan,
    duration::exact,
    load::{LoadClient, run_load, runtime},
};
use crate::{
    report::{Chart, Report, Scale, Series, Spread},
    server::{RedisServer, free_port},
};

const MAX_SHARDS: usize = 3;
const SLOTS: usize = 16_384;
const TASKS: usize = 256;
const JOIN_WITHIN: Duration = Duration::from_secs(30);

pub(super) fn run(plan: Plan, report: &mut Report) {
    let mut all = Series::new("all shards together", Vec::new());
    let mut busiest = Series::new("the busiest shard", Vec::new());
    for shards in 1..=MAX_SHARDS {
        let (all_micros, max_micros) = measure(plan, shards);
        all.points
            .push((exact(shards), Spread::exactly(all_micros)));
        busiest
            .points
            .push((exact(shards), Spread::exactly(max_micros)));
    }
    report.charts.push(Chart {
        name: "shards".into(),
        title: "Processor time of a decision in a cluster".to_owned(),
        x: "shards".into(),
        y: "microseconds".into(),
        scale: Scale::Linear,
        series: vec![busiest, all],
    });
}

/// Microseconds of processor time for a decision: of all shards, and of the one that had the most.
fn measure(plan: Plan, shards: usize) -> (f64, f64) {
    let nodes = cluster(shards);
    let hosts: Vec<String> = nodes
        .iter()
        .map(|node| format!("127.0.0.1:{}", node.port()))
        .collect();
    let runtime = runtime();
    let client = runtime.block_on(LoadClient::connected(&format!(
        "redis+cluster://{}",
        hosts.join(",")
    )));
    let turns = (0..plan.rounds()).map(|_| {
        let before: Vec<f64> = nodes.iter().map(processor_time).collect();
        let client = client.clone();
        let result = runtime.block_on(run_load(TASKS, plan.turn(), move |key| {
            client.clone().ask(key)
        }));
        let after = nodes.iter().map(processor_time);
        let spent = after.zip(&before).map(|(after, before)| after - before);
        let each = spent.map(|seconds| seconds * 1e6 / exact(result.decisions));
        let each: Vec<f64> = each.collect();
        (
            each.iter().sum::<f64>(),
            each.iter().fold(0.0, |most: f64, one| most.max(*one)),
        )
    });
    let (all, most): (Vec<f64>, Vec<f64>) = turns.unzip();
    (Spread::of(&all).median, Spread::of(&most).median)
}

fn processor_time(node: &RedisServer) -> f64 {
    let seconds = |field: &str| -> f64 {
        let seconds = node.info("cpu", field);
        seconds.parse().expect("a number of seconds")
    };
    seconds("used_cpu_user") + seconds("used_cpu_sys")
}

/// A cluster of `shards` masters.
fn cluster(shards: usize) -> Vec<RedisServer> {
    let start = |_| {
        let bus = free_port().to_string();
        let node = RedisServer::start(&["--cluster-enabled", "yes", "--cluster-port", &bus]);
        (node, bus)
    };
    let nodes: Vec<(RedisServer, String)> = (0..shards).map(start).collect();
    for (shard, (node, bus)) in nodes.iter().enumerate() {
        let slots = shard * SLOTS / shards..(shard + 1) * SLOTS / shards;
        let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
        let mut words = vec!["CLUSTER", "ADDSLOTS"];
        words.extend(slots.iter().map(String::as_str));
        node.ask::<()>(&words);
        let port = node.port().to_string();
        let meet = ["CLUSTER", "MEET", "127.0.0.1", &port, bus];
        nodes[0].0.ask::<()>(&meet);
    }
    let nodes: Vec<RedisServer> = nodes.into_iter().map(|(node, _)| node).collect();
    wait_until_joined(&nodes);
    nodes
}

fn wait_until_joined(nodes: &[RedisServer]) {
    let known = format!("cluster_known_nodes:{}", nodes.len());
    let is_joined = |node: &RedisServer| {
        let info: String = node.ask(&["CLUSTER", "INFO"]);
        info.contains("cluster_state:ok") && info.contains(&known)
    };
    let started = Instant::now();
    while !nodes.iter().all(is_joined) {
        assert!(started.elapsed() < JOIN_WITHIN, "the cluster does not form");
        thread::sleep(Duration::from_millis(50));
    }
}

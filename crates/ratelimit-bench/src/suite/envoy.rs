//! Envoy's rate limit service beside a REST check of the same server: processor time of the server for a request. Its
//! quota service: time to the answer of a report.

mod client;
mod process;
mod quota;

use std::time::Duration;

use super::{
    Plan,
    duration::exact,
    envoy::{
        client::{RestClient, RlsClient},
        process::ServerProcess,
        quota::answer_times,
    },
    load::{run_load, runtime},
};
use crate::{
    report::{Goal, Report, Row, Spread},
    server::RedisServer,
};

/// Requests under way at any moment, in both protocols.
const TASKS: usize = 64;
/// Connections of the gRPC client, which Envoy opens one of for each of its threads.
const CONNECTIONS: usize = 4;
/// Descriptors of a request.
const DESCRIPTORS: [usize; 2] = [1, 4];

pub(super) fn run(plan: Plan, report: &mut Report) {
    let redis = RedisServer::start(&[]);
    for (store, url) in [("memory", None), ("Redis", Some(redis.url()))] {
        let server = ServerProcess::start(url.as_deref());
        rows(plan, store, &server, report);
        quota_row(store, &server, report);
    }
}

/// The time to the answer of a report: the median, between the shortest and the 99th of a hundred.
fn quota_row(store: &str, server: &ServerProcess, report: &mut Report) {
    let times = runtime().block_on(answer_times(server.envoy));
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    let spread = Spread {
        low: at(0),
        median: at(50),
        high: at(99),
    };
    let what =
        format!("server, Envoy's quota service, {store}, a report of 1,000 buckets on 100 streams");
    let row = Row::new(what, "ms", spread);
    report.rows.push(row.goal(Goal::AtMost(100.0)));
}

fn rows(plan: Plan, store: &str, server: &ServerProcess, report: &mut Report) {
    let runtime = runtime();
    let rest = RestClient::new(server.rest);
    let services = runtime.block_on(async {
        let mut services = Vec::new();
        for descriptors in DESCRIPTORS {
            services.push(RlsClient::connect(server.envoy, CONNECTIONS, descriptors).await);
        }
        services
    });
    let mut of_rest = Vec::new();
    let mut of_services = vec![Vec::new(); services.len()];
    for _ in 0..plan.rounds() {
        let rest = rest.clone();
        of_rest.push(runtime.block_on(turn(plan, server, move |key| rest.clone().check(key))));
        for (service, costs) in services.iter().zip(&mut of_services) {
            let service = service.clone();
            let cost = turn(plan, server, move |key| {
                service.clone().should_rate_limit(key)
            });
            costs.push(runtime.block_on(cost));
        }
    }
    for (descriptors, costs) in DESCRIPTORS.into_iter().zip(of_services) {
        let what = format!("server, Envoy's service, {store}, descriptors: {descriptors}");
        let row = Row::new(what, "us of CPU", Spread::of(&costs));
        let row = row.beside("a REST check", Spread::of(&of_rest));
        report.rows.push(row.goal(Goal::RatioAtMost(1.5)));
    }
}

/// The processor time of the server for a request, in microseconds.
async fn turn<A, F>(plan: Plan, server: &ServerProcess, request: A) -> f64
where
    A: Fn(usize) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let before = server.cpu_time();
    // The processor time is counted in steps of 10 ms.
    let lasting = plan.turn().max(Duration::from_secs(1));
    let result = run_load(TASKS, lasting, request).await;
    let used = server.cpu_time() - before;
    used.as_secs_f64() * 1e6 / exact(result.decisions)
}

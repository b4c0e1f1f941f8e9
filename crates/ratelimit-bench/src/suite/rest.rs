//! A REST check of `ratelimit-server` beside one of `throttlecrab-server`: requests a second, processor time and
//! instructions of the server for a request.

mod client;
mod server;
mod wrk;

use std::time::Duration;

use self::{
    client::RestConnection,
    server::{Contender, RestServer},
    wrk::Wrk,
};
use super::Plan;
use crate::report::{Goal, Report, Row, Spread};

/// Connections that stay open, each with one request at a time.
const CONNECTIONS: usize = 64;
/// Number of keys that are checked in turn.
const KEYS: usize = 10_000;
/// The shortest turn: processor time is counted in steps of 10 ms.
const SHORTEST_TURN: Duration = Duration::from_secs(3);
/// Requests of one count of instructions.
const COUNTED: usize = 10 * CONNECTIONS;
const COUNTS: usize = 3;

pub(super) fn run(plan: Plan, report: &mut Report) {
    let Some(theirs) = Contender::throttlecrab() else {
        eprint!(" no throttlecrab-server: `cargo xtask bench` installs it;");
        return;
    };
    let ours = Contender::ours();
    insist_on_equal_answers(&ours, &theirs);
    report.rows.push(
        row("instructions", Spread::exactly(instructions(&ours)))
            .beside(theirs.name, Spread::exactly(instructions(&theirs))),
    );

    let wrk = Wrk::new(CONNECTIONS, plan.turn().max(SHORTEST_TURN));
    let servers = [&ours, &theirs].map(RestServer::start);
    let (mut rates, mut costs) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    for _ in 0..plan.rounds() {
        for ((server, rates), costs) in servers.iter().zip(&mut rates).zip(&mut costs) {
            let before = server.cpu_time();
            let driven = wrk.drive(server);
            let used = server.cpu_time() - before;
            rates.push(driven.requests / driven.seconds);
            costs.push(used.as_secs_f64() * 1e6 / driven.requests);
        }
    }
    let [our_rate, their_rate] = rates.map(|rates| Spread::of(&rates));
    let [our_cost, their_cost] = costs.map(|costs| Spread::of(&costs));
    report.rows.extend([
        row("requests/s", our_rate)
            .beside(theirs.name, their_rate)
            .goal(Goal::RatioAtLeast(1.1)),
        row("us of CPU", our_cost)
            .beside(theirs.name, their_cost)
            .goal(Goal::RatioAtMost(0.91)),
    ]);
}

fn row(unit: &'static str, ours: Spread) -> Row {
    Row::new("server, a REST check of 64 connections", unit, ours)
}

/// Posts some keys to both, whose answers must say the same: allowed, and one unit less.
fn insist_on_equal_answers(ours: &Contender, theirs: &Contender) {
    let mut connections = [ours, theirs].map(|contender| {
        let server = RestServer::start(contender);
        (RestConnection::open(&server), server)
    });
    for key in 0..CONNECTIONS {
        let [ours, theirs] = connections.each_mut().map(|(connection, _)| {
            let answer = connection.check(key);
            (answer["allowed"].clone(), answer["remaining"].clone())
        });
        assert_eq!(ours, theirs, "the answers to key {key}");
        assert_eq!(ours.0, true, "key {key}");
    }
}

/// The instructions of the server for a request: the least of several counts.
///
/// The connections take turns, so each request wakes the task of its connection, as under load.
fn instructions(contender: &Contender) -> f64 {
    let mut server = RestServer::start_counted(contender);
    let open = |_| RestConnection::open(&server);
    let mut connections: Vec<RestConnection> = (0..CONNECTIONS).map(open).collect();
    let mut check_all = || {
        for number in 0..COUNTED {
            connections[number % CONNECTIONS].check(number);
        }
    };
    check_all();
    server.instructions();
    let mut count = || {
        check_all();
        server.instructions() / super::duration::exact(COUNTED)
    };
    (0..COUNTS).map(|_| count()).fold(f64::INFINITY, f64::min)
}

//! A REST check of `ratelimit-server` beside one of `throttlecrab-server`: requests a second, processor time and
//! instructions of the server for a request.

mod wrk;

use std::{env, path::PathBuf, time::Duration};

use self::wrk::Wrk;
use super::{Plan, cpu_time::cpu_time};
use crate::{
    report::{Goal, Report, Row, Spread},
    rest::{RestConnection, RestProgram, RestServer, instructions},
};

/// The shortest turn: processor time is counted in steps of 10 ms.
const SHORTEST_TURN: Duration = Duration::from_secs(3);

/// Keys whose answers are compared.
const COMPARED: u32 = 64;

/// The variable with the path of the peer, which `cargo xtask bench` sets.
const THROTTLECRAB: &str = "THROTTLECRAB_SERVER_BIN";

pub(super) fn run(plan: Plan, report: &mut Report) {
    let Some(theirs) = throttlecrab() else {
        eprint!(" no throttlecrab-server: `cargo xtask bench` installs it;");
        return;
    };
    let beside_us = env::current_exe().expect("our own path");
    let ours = RestProgram::ours(beside_us.with_file_name("ratelimit-server"));
    insist_on_equal_answers(&ours, &theirs);
    report.rows.push(
        row("instructions", Spread::exactly(instructions(&ours)))
            .beside(theirs.name, Spread::exactly(instructions(&theirs))),
    );

    let wrk = Wrk::new(plan.turn().max(SHORTEST_TURN));
    let servers = [&ours, &theirs].map(RestServer::start);
    let (mut rates, mut costs) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    for _ in 0..plan.rounds() {
        for ((server, rates), costs) in servers.iter().zip(&mut rates).zip(&mut costs) {
            let before = cpu_time(server.pid());
            let driven = wrk.drive(server);
            let used = cpu_time(server.pid()).saturating_sub(before);
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
fn insist_on_equal_answers(ours: &RestProgram, theirs: &RestProgram) {
    let mut connections = [ours, theirs].map(|program| {
        let server = RestServer::start(program);
        (RestConnection::open(&server), server)
    });
    for key in 0..COMPARED {
        let [ours, theirs] = connections.each_mut().map(|(connection, _)| {
            let answer = connection.check(key);
            (answer["allowed"].clone(), answer["remaining"].clone())
        });
        assert_eq!(ours, theirs, "the answers to key {key}");
        assert_eq!(ours.0, true, "key {key}");
    }
}

/// The peer, where it is installed. Its budgets are those of [`RestProgram::ours`].
fn throttlecrab() -> Option<RestProgram> {
    let file = PathBuf::from(env::var_os(THROTTLECRAB)?);
    file.is_file().then_some(RestProgram {
        name: "throttlecrab-server",
        file,
        args: &["--http", "--http-host", "127.0.0.1", "--log-level", "error"],
        listen: |addr| ["--http-port".to_owned(), addr.port().to_string()],
        path: "/throttle",
        members: r#""max_burst":100000000,"count_per_period":1000000,"period":1"#,
    })
}

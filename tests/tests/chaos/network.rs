//! Connections that break, or cannot be made.

use std::time::{Duration, Instant};

use ratelimit_core::FailureMode;
use ratelimit_tests::{
    chaos::{Fixture, Kind, Observations, Ours, endless, eventually, ours, scenario},
    ports::free_port,
    redis::RedisProcess,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    task::block_in_place,
};

use crate::harness::{calls, heals, is_checked, key};

const INSTANCES: usize = 20;
/// The goal, for each second of an outage.
const MOST_ATTEMPTS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_05_a_silent_connection_is_replaced() {
    scenario::half_open(Kind::Ours).await.assert_survived();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_19_killed_connections_heal_and_count_nothing_twice() {
    scenario::killed_connections(Kind::Ours)
        .await
        .assert_survived();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_19_a_server_that_is_full_is_joined_when_there_is_room() {
    let fixture = Fixture::start(&["--maxclients", "3"]).await;
    let mut crowd = Vec::new();
    while crowd.len() < 3 {
        // Until the server has noticed that the connection of the fixture is closed, it refuses the third one.
        let mut stream = TcpStream::connect(("127.0.0.1", fixture.server.port()))
            .await
            .unwrap();
        let mut reply = [0; 7];
        let greeting = async {
            stream.write_all(b"PING\r\n").await?;
            stream.read_exact(&mut reply).await
        };
        if greeting.await.is_ok() && reply == *b"+PONG\r\n" {
            crowd.push(stream);
        }
    }
    let ours = Ours::new(fixture.config(), FailureMode::Open);

    let (checked, unchecked) = calls(&ours.limiter, &endless(), Duration::from_secs(1)).await;
    drop(crowd);
    let healed = heals(&ours).await;

    println!("row 19 maxclients: {unchecked} decisions without the store, healed in {healed:?}");
    assert_eq!(checked, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_19_a_connection_closed_while_idle_costs_no_decision() {
    let fixture = Fixture::start(&["--timeout", "1"]).await;
    let config = fixture.config().timeout(Duration::from_secs(1));
    let ours = ours(config, FailureMode::Open).await;

    tokio::time::sleep(Duration::from_secs(4)).await;
    heals(&ours).await;
    let (checked, unchecked) = calls(&ours.limiter, &endless(), Duration::from_secs(1)).await;

    println!("row 19 idle close: {checked} decisions by the store, {unchecked} without");
    assert_eq!(unchecked, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_22_nobody_waits_for_a_refused_connection() {
    scenario::refused(Kind::Ours).await.assert_survived();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_22_nobody_waits_for_a_connection_that_nothing_answers() {
    let fixture = Fixture::start(&[]).await;
    let (hole, crowd, port) = black_hole().await;
    let ours = Ours::new(
        fixture.config_at(&format!("redis://127.0.0.1:{port}")),
        FailureMode::Local,
    );

    let (checked, unchecked) = calls(&ours.limiter, &endless(), Duration::from_secs(3)).await;
    drop((hole, crowd));
    let _server = block_in_place(|| RedisProcess::start_on(port, &[]));
    let healed = heals(&ours).await;

    println!("row 22 black hole: {unchecked} decisions without the store, healed in {healed:?}");
    assert_eq!(checked, 0);
}

/// A port whose queue of connections is full, so that the system answers no further one.
async fn black_hole() -> (tokio::net::TcpListener, Vec<TcpStream>, u16) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("a socket option");
    socket
        .bind(([127, 0, 0, 1], free_port()).into())
        .expect("a free port");
    let listener = socket.listen(1).expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    let mut crowd = Vec::new();
    let patience = Duration::from_millis(200);
    while let Ok(stream) =
        tokio::time::timeout(patience, TcpStream::connect(("127.0.0.1", port))).await
    {
        crowd.push(stream.expect("a connection"));
    }
    (listener, crowd, port)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_22_an_outage_sees_few_attempts_to_connect() {
    let observed = Observations::listen();
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config(), FailureMode::Local).await;

    let said = observed.lines("").len();
    fixture.proxy.turn_away();
    fixture.proxy.reset();
    let broken = Instant::now();
    let (_, unchecked) = calls(&ours.limiter, &endless(), Duration::from_secs(4)).await;
    let attempts = fixture.proxy.attempts_since(broken);
    let said = observed.lines("").len() - said;
    fixture.proxy.behave();
    let healed = heals(&ours).await;

    println!(
        "row 22 turned away: {unchecked} decisions without the store, {attempts} attempts and {said} \
         log lines in 4 s, healed in {healed:?}"
    );
    assert!((1..=6).contains(&said), "{said} log lines");
    assert!((1..=4 * MOST_ATTEMPTS).contains(&attempts), "{attempts}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_30_twenty_instances_do_not_storm_the_server() {
    let fixture = Fixture::start(&[]).await;
    let mut instances = Vec::new();
    for _ in 0..INSTANCES {
        instances.push(ours(fixture.config(), FailureMode::Local).await);
    }

    fixture.proxy.turn_away();
    fixture.proxy.reset();
    let broken = Instant::now();
    let together = instances
        .iter()
        .map(async |ours| calls(&ours.limiter, &endless(), Duration::from_secs(4)).await);
    futures_util::future::join_all(together).await;
    let attempts = fixture.proxy.attempts_since(broken);
    fixture.proxy.behave();
    let back = Instant::now();
    for ours in &instances {
        heals(ours).await;
    }

    let spread = spread_of(&fixture.proxy.attempts(), back);
    println!("row 30 twenty instances: {attempts} attempts in 4 s, then back over {spread:?}");
    assert!(attempts <= 4 * MOST_ATTEMPTS * INSTANCES, "{attempts}");
    assert!(spread > Duration::from_millis(5), "{spread:?}");
    for ours in &instances {
        eventually("a decision by the store", async || {
            is_checked(&ours.limiter.peek(&endless(), &key("after")).await)
        })
        .await;
    }
}

/// How long lay between the first and the last connection after `moment`.
fn spread_of(attempts: &[Instant], moment: Instant) -> Duration {
    let mut after = attempts.iter().filter(|made| **made >= moment);
    let first = after.next().copied().unwrap_or(moment);
    after
        .next_back()
        .map_or(Duration::ZERO, |last| *last - first)
}

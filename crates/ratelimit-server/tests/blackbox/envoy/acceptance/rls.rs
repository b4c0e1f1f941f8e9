//! The rate limit service.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::{StreamExt as _, future::join_all, stream};
use ratelimit_envoy::proto::envoy::{
    extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride,
    service::ratelimit::v3::{
        RateLimitRequest,
        rate_limit_response::{Code, rate_limit::Unit},
        rate_limit_service_client::RateLimitServiceClient,
    },
};
use ratelimit_tests::redis::RedisProcess;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tonic::Status;

use super::{
    super::{
        EnvoyServer,
        process::{Envoy, FilterOptions},
        request,
    },
    MIB, print_log, print_times,
};
use crate::server::until;

/// Connections of the client.
const CONNECTIONS: usize = 4;

/// Calls at a fixed rate. Each time is counted from the planned start of its call, so a late start is part of it.
async fn call_at_rate(
    server: &EnvoyServer,
    per_second: u32,
    count: u32,
    request: impl Fn(u32) -> RateLimitRequest,
) -> Vec<(Duration, Result<Code, Status>)> {
    let channels = join_all((0..CONNECTIONS).map(|_| server.channel())).await;
    let clients: Vec<_> = channels
        .into_iter()
        .map(RateLimitServiceClient::new)
        .collect();
    let start = Instant::now();
    let mut calls = JoinSet::new();
    for (index, client) in (0..count).zip(clients.iter().cycle()) {
        let planned = start + Duration::from_secs(1) * index / per_second;
        sleep_until(planned).await;
        let (mut client, request) = (client.clone(), request(index));
        calls.spawn(async move {
            let response = client.should_rate_limit(request).await;
            let code = response.map(|response| response.into_inner().overall_code());
            (planned.elapsed(), code)
        });
    }
    calls.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_rules_answer_every_call_at_2000_a_second() {
    let mut rules = String::from("domain: edge\ndescriptors:\n");
    for user in 0..10_000 {
        let limit = "rate_limit: { unit: day, requests_per_unit: 1000000 }";
        writeln!(rules, "  - {{ key: user, value: u{user}, {limit} }}").unwrap();
    }
    let redis = RedisProcess::start(&[]);
    let server = EnvoyServer::start_connected(&rules, &redis.url(), &[]).await;
    let user = |index: u32| {
        let user = format!("u{}", index % 10_000);
        request("edge", "user", user.as_bytes())
    };

    let start = Instant::now();
    let calls = call_at_rate(&server, 2_000, 120_000, user).await;

    println!("{} calls in {:?}", calls.len(), start.elapsed());
    let failed: Vec<_> = calls
        .iter()
        .filter(|(_, code)| !matches!(code, Ok(Code::Ok)))
        .collect();
    let late = calls
        .iter()
        .filter(|(time, _)| *time > Duration::from_millis(20))
        .count();
    print_times(
        "response times",
        calls.iter().map(|(time, _)| *time).collect(),
    );
    println!(
        "{late} took longer than 20 ms; {} were decided by the failure mode; {} MiB resident",
        server.metric("rate_limiter_unchecked_total", "").await,
        server.resident_bytes().await / MIB
    );
    assert!(
        failed.is_empty(),
        "{} of 120000 calls failed, first {:?}",
        failed.len(),
        failed[0]
    );
    let counted = "rate_limiter_envoy_requests_total";
    assert_eq!(server.metric(counted, r#"code="ok""#).await, 120_000);
}

/// Requests of each Envoy that are under way at a time, below the 1,024 that its cluster allows.
const IN_FLIGHT: usize = 500;

const PATIENT: [&str; 2] = ["--time-budget", "30s"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_envoys_and_two_servers_pass_exactly_1000_of_8000() {
    let rules = "domain: edge\ndescriptors:\n  \
        - { key: user, rate_limit: { unit: minute, requests_per_unit: 1000 } }\n";
    let redis = RedisProcess::start(&[]);
    let one = EnvoyServer::start_connected(rules, &redis.url(), &PATIENT).await;
    let other = EnvoyServer::start_connected(rules, &redis.url(), &PATIENT).await;
    let envoys = [0; 4].map(|_| Arc::new(Envoy::start(&[&one, &other], FilterOptions::Strict)));
    for envoy in &envoys {
        until(async || envoy.get("/unlimited", &[]).await).await;
        // The first calls of an Envoy wait for its connections and may fail.
        until(async || {
            let (_, fields) = envoy.get("/user", &[("x-user", b"first")]).await?;
            fields.get("x-ratelimit-limit").map(drop)
        })
        .await;
    }

    // A run that two windows share proves nothing, so it is repeated.
    for attempt in 1..=5 {
        let minute = next_minute().await;
        let user = format!("user {attempt}");
        let start = Instant::now();
        let counts = join_all(envoys.iter().map(|envoy| statuses(envoy, &user, 2_000))).await;

        println!("attempt {attempt}: {counts:?} in {:?}", start.elapsed());
        if seconds() / 60 != minute {
            continue;
        }
        let sum = |status: u16| counts.iter().filter_map(|count| count.get(&status)).sum();
        let (passed, denied): (usize, usize) = (sum(200), sum(429));
        for (number, envoy) in envoys.iter().enumerate() {
            print_log(&format!("Envoy {number}"), envoy);
        }
        assert_eq!((passed, denied), (1_000, 7_000), "{counts:?}");
        return;
    }
    panic!("no attempt ended in the minute in which it began");
}

fn seconds() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap().as_secs()
}

/// Waits until a minute has just begun, and returns its number.
async fn next_minute() -> u64 {
    let second = seconds() % 60;
    if second > 5 {
        tokio::time::sleep(Duration::from_secs(60 - second)).await;
    }
    seconds() / 60
}

/// The number of responses of each status; 0 stands for none.
async fn statuses(envoy: &Arc<Envoy>, user: &str, count: usize) -> BTreeMap<u16, usize> {
    let responses = stream::iter(0..count).map(|_| async {
        let response = envoy.get("/user", &[("x-user", user.as_bytes())]).await;
        response.map_or(0, |(status, _)| status)
    });
    let mut responses = responses.buffer_unordered(IN_FLIGHT);
    let mut counts = BTreeMap::new();
    while let Some(status) = responses.next().await {
        *counts.entry(status).or_default() += 1;
    }
    counts
}

/// Bytes for each new value that are the allocator's noise. A policy or a series of its own would be several hundred.
const NOISE: u64 = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_overridden_values_leave_memory_and_series_as_they_are() {
    let rules = "domain: edge\ndescriptors:\n  \
        - { key: user, detailed_metric: true, rate_limit: { unit: day, requests_per_unit: 5 } }\n";
    let redis = RedisProcess::start(&[]);
    let args = [&PATIENT[..], &["--envoy-ratelimit-metrics"]].concat();
    let server = EnvoyServer::start_connected(rules, &redis.url(), &args).await;
    let overridden = |index: u32| {
        let mut request = request("edge", "user", format!("value {index}").as_bytes());
        request.descriptors[0].limit = Some(RateLimitOverride {
            requests_per_unit: index + 1,
            unit: Unit::Day.into(),
            ..RateLimitOverride::default()
        });
        request
    };
    let send = async |numbers: std::ops::Range<u32>| {
        for first in numbers.step_by(500) {
            let codes = server.codes((first..first + 500).map(overridden)).await;
            assert!(codes.iter().all(|code| *code == Code::Ok));
        }
        let page = server.server.get("/actuator/prometheus").await.body;
        let series = page.lines().filter(|line| !line.starts_with('#')).count();
        let bytes = server.resident_bytes().await;
        println!("{} MiB resident, {series} series", bytes / MIB);
        (bytes, series)
    };
    send(0..1_000).await;

    let (bytes, series) = send(1_000..101_000).await;
    let (more_bytes, more_series) = send(101_000..201_000).await;

    // A busy machine adds series of slow calls and late replies, a few in all.
    assert!(more_series < series + 50, "{series}, then {more_series}");
    let grown = more_bytes.saturating_sub(bytes);
    assert!(grown < 100_000 * NOISE, "{grown} bytes more");
}

//! The rate limit quota service.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, future::join_all, stream};
use ratelimit_envoy::proto::envoy::service::rate_limit_quota::v3::BucketId;
use ratelimit_tests::{chaos::Proxy, ports::free_port, redis::RedisProcess};
use tokio::{net::TcpStream, time::Instant};

use super::{
    super::{
        EnvoyServer,
        process::Envoy,
        quota::{
            CONFIG, LIMIT, Load, assert_nothing_was_ignored, now, passed, ready, sleep_until,
            start_envoy, window,
        },
        quota_client::{QuotaClient, Told, bucket, report, start, usage},
    },
    MIB, print_log, print_times,
};
use crate::server::until;

/// Windows of a run of 60 s.
const WINDOWS: u64 = 6;

/// Fewer requests in a window say that Envoys were left without grants.
const MIN_USED: usize = LIMIT / 2;

/// Waits until an Envoy listens. It has no stream and no bucket before its first request.
async fn listening(envoy: &Envoy) {
    until(async || TcpStream::connect(("127.0.0.1", envoy.port)).await.ok()).await;
}

/// A quota server that has connected to its Redis.
async fn start_connected(redis: &str, listen: &str) -> EnvoyServer {
    let args = ["--redis", redis, "--on-failure", "local"];
    let server = start(CONFIG, &[&args[..], &["--envoy-listen", listen]].concat());
    until(async || {
        let ready = server.server.get("/actuator/health/readiness").await;
        (ready.status == 200).then_some(())
    })
    .await;
    server
}

/// Asserts that at most the limit passed in each window, and returns the sum.
fn total(loads: &[&Load], windows: std::ops::Range<u64>) -> usize {
    windows.map(|window| passed(loads, window)).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_envoys_that_join_at_once_stay_within_the_limit() {
    let redis = RedisProcess::start(&[]);
    let server = start_connected(&redis.url(), "127.0.0.1:0").await;
    let envoys = [0; 5].map(|_| start_envoy(&[server.addr.port()]));
    join_all(envoys.iter().map(|envoy| listening(envoy))).await;

    let first = window(now());
    let loads: Vec<Load> = envoys.iter().map(|envoy| Load::start(envoy, 12)).collect();
    let loads: Vec<&Load> = loads.iter().collect();
    let end = first + WINDOWS + 1;
    sleep_until(end, 1).await;

    for (number, envoy) in envoys.iter().enumerate() {
        print_log(&format!("Envoy {number}"), envoy);
        assert_nothing_was_ignored(envoy);
    }
    total(&loads, first..end);
    let last = passed(&loads, end - 1);
    assert!(last >= MIN_USED, "{last} in the last window");
    let streams = server.metric("rate_limiter_envoy_quota_streams", "").await;
    assert_eq!(streams, 5);
}

/// The behaviour of a network that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// Bytes are lost, and the connection is reset at the end.
    Lossy,
    /// Bytes are held, and arrive at the end.
    Delaying,
}

const PARTITION: Duration = Duration::from_secs(30);

/// The longest life of a grant, and time for a message that was on its way.
const GRANT_END: Duration = Duration::from_secs(10);

/// Cuts an Envoy off for 30 s. Returns its load, the windows of the run, and the one in which the cut ended.
async fn cut_off(cut: Cut) -> (Load, std::ops::Range<u64>, u64) {
    let redis = RedisProcess::start(&[]);
    let server = start_connected(&redis.url(), "127.0.0.1:0").await;
    let proxy = Proxy::start(server.addr.port()).await;
    let envoy = start_envoy(&[proxy.port()]);
    ready(&envoy).await;
    let first = window(now()) + 1;
    let load = Load::start(&envoy, 16);
    // Early in a window, so that Envoy has a grant.
    sleep_until(first + 2, 2).await;
    let before = passed(&[&load], first + 1);
    assert!(before >= MIN_USED, "{before} before the cut");

    // Slow enough that the end of the grant, and not its last token, ends it.
    load.set_rate(3);
    let began = now();
    match cut {
        Cut::Lossy => {
            proxy.go_half_open();
            proxy.turn_away();
        }
        Cut::Delaying => proxy.freeze(),
    }
    tokio::time::sleep(PARTITION).await;
    load.set_rate(16);
    let ended = now();
    match cut {
        Cut::Lossy => {
            proxy.behave();
            proxy.reset();
        }
        Cut::Delaying => proxy.thaw(),
    }

    let recovered = until(async || {
        let passed = load.passed.lock().unwrap();
        passed
            .iter()
            .map(|(sent, _)| *sent)
            .find(|sent| *sent > ended)
    })
    .await;
    sleep_until(window(recovered) + 3, 1).await;
    print_log("Envoy", &envoy);
    assert_nothing_was_ignored(&envoy);
    let during: Vec<Duration> = {
        let passed = load.passed.lock().unwrap();
        let during = passed
            .iter()
            .filter(|(sent, done)| *sent > began && *done < ended);
        during.map(|(_, done)| done.saturating_sub(began)).collect()
    };
    println!(
        "{cut:?}: {} passed while it was cut off, the last after {:?}; the first afterwards after {:?}",
        during.len(),
        during.iter().max(),
        recovered.saturating_sub(ended)
    );
    println!(
        "closed streams: {}",
        server
            .metric("rate_limiter_envoy_quota_closed_total", "")
            .await
    );
    assert!(during.iter().all(|after| *after < GRANT_END), "{during:?}");
    (load, first..window(recovered) + 3, window(ended))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_that_is_cut_off_denies_after_its_grant_and_stays_within_the_limit() {
    let (load, windows, _) = cut_off(Cut::Lossy).await;

    let last = windows.end - 1;
    total(&[&load], windows);
    let used = passed(&[&load], last);
    assert!(used >= MIN_USED, "{used} after the cut");
}

/// The documented exception: messages that arrive late add what they granted, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_that_are_delivered_late_add_at_most_themselves() {
    let (load, windows, ended) = cut_off(Cut::Delaying).await;

    // A grant that arrives late is spent within 8 s: in the window of its arrival or the next one.
    total(&[&load], windows.start..ended);
    total(&[&load], ended + 2..windows.end);
    let late = load.passed(ended).0 + load.passed(ended + 1).0;
    println!("{late} in the two windows after the delivery, with a limit of {LIMIT} each");
    assert!(late <= 3 * LIMIT, "{late}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_of_which_one_is_killed_every_10_s_stay_within_the_limit() {
    let redis = RedisProcess::start(&[]);
    let ports = [free_port(), free_port()];
    let start = async |port: u16| start_connected(&redis.url(), &format!("127.0.0.1:{port}")).await;
    let mut servers = [start(ports[0]).await, start(ports[1]).await];
    let envoys = [0; 2].map(|_| start_envoy(&ports));
    for envoy in &envoys {
        ready(envoy).await;
    }
    let first = window(now()) + 1;
    let loads = [Load::start(&envoys[0], 12), Load::start(&envoys[1], 12)];
    let loads = [&loads[0], &loads[1]];

    for kill in 0..WINDOWS {
        sleep_until(first + 1 + kill, 3).await;
        let index = usize::from(kill % 2 == 1);
        servers[index].server.signal("KILL");
        servers[index].server.ended().await;
        sleep_until(first + 1 + kill, 6).await;
        servers[index] = start(ports[index]).await;
    }
    let end = first + 1 + WINDOWS;
    // Both servers are up: Envoys open their streams at the next report.
    sleep_until(end + 3, 0).await;

    for (number, envoy) in envoys.iter().enumerate() {
        print_log(&format!("Envoy {number}"), envoy);
        assert_nothing_was_ignored(envoy);
    }
    let during = total(&loads, first + 1..end);
    println!("{during} passed while servers were killed");
    total(&loads, end..end + 3);
    let used = passed(&loads, end + 2);
    assert!(during > 0 && used >= MIN_USED, "{during}, then {used}");
}

const BUCKETS: usize = 10_000;
const BUCKET_COUNT: &str = "rate_limiter_envoy_quota_buckets";

/// A report of an Envoy every 5 s.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// Ten times the second that is wanted.
const MAX_ANSWER: Duration = Duration::from_secs(10);

const MAX_RESIDENT: u64 = 100 * MIB;

/// A bucket without requests is abandoned by the first report after this time.
const MAX_IDLE: Duration = Duration::from_secs(60);

/// Reports `allowed` requests of each bucket, waits for a message about each, and returns how long that took.
///
/// As Envoy does, the client forgets buckets that are abandoned.
async fn report_all(client: &mut QuotaClient, ids: &mut Vec<BucketId>, allowed: u64) -> Duration {
    let usages = ids.iter().map(|id| usage(id, allowed, 0)).collect();
    let sent = Instant::now();
    client.send(report("edge", usages)).await;
    let user = |id: &BucketId| id.bucket[1].value.clone();
    let (mut answered, mut abandoned) = (HashSet::new(), HashSet::new());
    while answered.len() < ids.len() {
        for (id, message) in client.next().await.unwrap().expect("the stream goes on") {
            answered.insert(user(&id));
            if message == Told::Abandon {
                abandoned.insert(user(&id));
            }
        }
    }
    let time = sent.elapsed();
    ids.retain(|id| !abandoned.contains(&user(id)));
    time
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_buckets_of_one_stream_are_answered_and_abandoned() {
    let redis = RedisProcess::start(&[]);
    let server = start_connected(&redis.url(), "127.0.0.1:0").await;
    let mut client = QuotaClient::open(&server).await.unwrap();
    let id = |number| {
        let user = format!("a{number}");
        bucket(&[("limit", b"per-user"), ("user", user.as_bytes())])
    };
    let mut ids: Vec<BucketId> = (0..BUCKETS).map(id).collect();

    let mut times = Vec::new();
    let mut active = Instant::now();
    let mut resident = Vec::new();
    let idle = loop {
        let start = Instant::now();
        // Four reports with requests, then none.
        let allowed = u64::from(times.len() < 4);
        if allowed > 0 {
            active = start;
        }
        times.push(report_all(&mut client, &mut ids, allowed).await);
        resident.push(server.resident_bytes().await / MIB);
        if ids.is_empty() {
            break start - active;
        }
        assert!(active.elapsed() < 2 * MAX_IDLE, "not abandoned: {times:?}");
        tokio::time::sleep(REPORT_EVERY.saturating_sub(start.elapsed())).await;
    };

    println!("report to last answer: {times:?}");
    println!("resident MiB: {resident:?}");
    println!("abandoned by the report {idle:?} after the last request");
    print_times("reports", times.clone());
    assert!(times.iter().all(|time| *time < MAX_ANSWER), "{times:?}");
    assert!(
        resident.iter().all(|mib| mib * MIB < MAX_RESIDENT),
        "{resident:?}"
    );
    assert!(idle + Duration::from_secs(1) > MAX_IDLE, "{idle:?}");
    until(async || (server.metric(BUCKET_COUNT, "").await == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_buckets_of_a_real_envoy_are_granted_and_abandoned() {
    let redis = RedisProcess::start(&[]);
    let server = start_connected(&redis.url(), "127.0.0.1:0").await;
    let envoy = start_envoy(&[server.addr.port()]);
    ready(&envoy).await;

    let start = Instant::now();
    touch_all(&envoy).await;
    println!("{BUCKETS} buckets made in {:?}", start.elapsed());
    // And that of requests without a user.
    let all = u64::try_from(BUCKETS + 1).unwrap();
    until(async || (server.metric(BUCKET_COUNT, "").await == all).then_some(())).await;
    println!("all reported after {:?}", start.elapsed());
    // Grants arrive while the next requests are sent.
    let (granted, wanted) = (touch_all(&envoy).await, BUCKETS / 2);
    println!("{granted} passed with the second request of each bucket");
    let idle = Instant::now();
    let mut samples = Vec::new();
    let abandoned = loop {
        let buckets = server.metric(BUCKET_COUNT, "").await;
        samples.push((
            idle.elapsed().as_secs(),
            buckets,
            server.resident_bytes().await / MIB,
        ));
        if buckets == 0 {
            break idle.elapsed();
        }
        assert!(idle.elapsed() < 3 * MAX_IDLE, "{samples:?}");
        tokio::time::sleep(REPORT_EVERY).await;
    };

    println!("seconds idle, buckets, MiB resident: {samples:?}");
    println!("abandoned after {abandoned:?}");
    let page = server.server.get("/actuator/prometheus").await.body;
    let answers = page
        .lines()
        .filter(|line| line.contains("quota_answer_seconds"));
    println!("{}", answers.collect::<Vec<_>>().join("\n"));
    print_log("Envoy", &envoy);
    assert_nothing_was_ignored(&envoy);
    assert!(samples.iter().all(|(_, _, mib)| mib * MIB < MAX_RESIDENT));
    assert!(granted >= wanted, "{granted} of {BUCKETS} had a grant");
    // An abandoned bucket begins anew.
    let user = [("x-user", &b"a1"[..])];
    until(async || (envoy.passed("/", &user, 1).await == 1).then_some(())).await;
}

/// Sends a request of each user, and returns how many passed.
async fn touch_all(envoy: &Arc<Envoy>) -> usize {
    let requests = stream::iter(0..BUCKETS).map(|number| async move {
        let user = format!("a{number}");
        let response = envoy.get("/", &[("x-user", user.as_bytes())]).await;
        matches!(response, Some((200, _)))
    });
    let passed = requests
        .buffer_unordered(32)
        .filter(|passed| std::future::ready(*passed));
    passed.count().await
}

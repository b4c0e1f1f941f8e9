//! Real Envoys with the server as their quota service.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use ratelimit_envoy::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use ratelimit_tests::{ports::free_port, redis::RedisProcess};

use super::{
    EnvoyServer,
    process::{Envoy, bootstrap_with, service_cluster},
    quota_client::start,
    request,
};
use crate::server::until;

pub(super) const LIMIT: usize = 60;
const WINDOW: u64 = 10;

pub(super) const CONFIG: &str = "
[policy.site]
limits = 'fixed_window 60/10s'

[[envoy.bucket]]
domain = 'edge'
match = ['limit=site']
policy = 'site'

[[envoy.bucket]]
domain = 'edge'
match = ['limit=per-user', 'user']
limits = 'fixed_window 40/d'

[[envoy.rule]]
domain = 'edge'
match = ['generic_key=site']
policy = 'site'
";

/// A bucket for each `x-user`, and one for all other requests. Nothing passes without an assignment.
const FILTER: &str = "          - name: envoy.filters.http.rate_limit_quota
            typed_config:
              '@type': type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig
              domain: edge
              rlqs_server: { envoy_grpc: { cluster_name: service } }
              bucket_matchers:
                matcher_list:
                  matchers:
                  - predicate:
                      single_predicate:
                        input:
                          name: user
                          typed_config: { '@type': type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput, header_name: x-user }
                        value_match: { prefix: a }
                    on_match:
                      action:
                        name: rate_limit_quota
                        typed_config:
                          '@type': type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings
                          bucket_id_builder:
                            bucket_id_builder:
                              limit: { string_value: per-user }
                              user:
                                custom_value:
                                  name: user
                                  typed_config: { '@type': type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput, header_name: x-user }
                          reporting_interval: 5s
                          no_assignment_behavior: { fallback_rate_limit: { blanket_rule: DENY_ALL } }
                on_no_match:
                  action:
                    name: rate_limit_quota
                    typed_config:
                      '@type': type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings
                      bucket_id_builder: { bucket_id_builder: { limit: { string_value: site } } }
                      reporting_interval: 5s
                      no_assignment_behavior: { fallback_rate_limit: { blanket_rule: DENY_ALL } }
";

const ROUTES: &str = "              - match: { prefix: / }
                route: { cluster: upstream }\n";

/// Starts an Envoy whose cluster has these quota servers.
pub(super) fn start_envoy(services: &[u16]) -> Arc<Envoy> {
    let envoy = Envoy::launch(services.to_vec(), |ports| {
        bootstrap_with(ports, FILTER, ROUTES, &service_cluster(ports))
    });
    Arc::new(envoy)
}

pub(super) fn now() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap()
}

pub(super) fn window(at: Duration) -> u64 {
    at.as_secs() / WINDOW
}

/// Requests that passed: when they were sent, and when they were answered.
pub(super) type PassedRequests = Arc<Mutex<Vec<(Duration, Duration)>>>;

/// Requests at a rate that a test changes.
pub(super) struct Load {
    rate: Arc<AtomicU64>,
    pub(super) passed: PassedRequests,
    is_ended: Arc<AtomicBool>,
}

impl Load {
    pub(super) fn start(envoy: &Arc<Envoy>, rate: u64) -> Load {
        let load = Load {
            rate: Arc::new(AtomicU64::new(rate)),
            passed: Arc::default(),
            is_ended: Arc::default(),
        };
        let (envoy, rate) = (Arc::clone(envoy), Arc::clone(&load.rate));
        let (passed, is_ended) = (Arc::clone(&load.passed), Arc::clone(&load.is_ended));
        tokio::spawn(async move {
            while !is_ended.load(Ordering::Relaxed) {
                let rate = rate.load(Ordering::Relaxed);
                let pause = 1_000_u64.checked_div(rate).unwrap_or(100);
                tokio::time::sleep(Duration::from_millis(pause)).await;
                if rate == 0 {
                    continue;
                }
                let (envoy, passed) = (Arc::clone(&envoy), Arc::clone(&passed));
                tokio::spawn(async move {
                    let sent = now();
                    if let Some((200, _)) = envoy.get("/", &[]).await {
                        passed.lock().unwrap().push((sent, now()));
                    }
                });
            }
        });
        load
    }

    pub(super) fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Ordering::Relaxed);
    }

    /// The requests that certainly passed in a window, and those that may have.
    pub(super) fn passed(&self, wanted: u64) -> (usize, usize) {
        let passed = self.passed.lock().unwrap();
        let of = |time: Duration| window(time) == wanted;
        let certain = passed.iter().filter(|(sent, done)| of(*sent) && of(*done));
        let possible = passed.iter().filter(|(sent, done)| of(*sent) || of(*done));
        (certain.count(), possible.count())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
    }
}

/// The requests of all loads that passed in a window. More than the limit is an error.
pub(super) fn passed(loads: &[&Load], wanted: u64) -> usize {
    let counts: Vec<(usize, usize)> = loads.iter().map(|load| load.passed(wanted)).collect();
    let certain: usize = counts.iter().map(|(certain, _)| certain).sum();
    println!("window {wanted}: {counts:?}");
    assert!(certain <= LIMIT, "window {wanted}: {counts:?}");
    counts.iter().map(|(_, possible)| possible).sum()
}

/// Waits for a time in a window.
pub(super) async fn sleep_until(window: u64, seconds: u64) {
    let at = Duration::from_secs(window * WINDOW + seconds);
    tokio::time::sleep(at.saturating_sub(now())).await;
}

/// Nothing that was sent to Envoy is ignored by it.
pub(super) fn assert_nothing_was_ignored(envoy: &Envoy) {
    let log = envoy.whole_log();
    let errors: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("[error]") || line.contains("[critical]"))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

pub(super) async fn ready(envoy: &Envoy) {
    until(async || envoy.get("/", &[]).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_envoys_share_a_limit_by_demand() {
    let server = start(CONFIG, &[]);
    let [one, other] = [0, 1].map(|_| start_envoy(&[server.addr.port()]));
    for envoy in [&one, &other] {
        ready(envoy).await;
    }
    let first = window(now()) + 1;
    let busy = Load::start(&one, 16);
    bytes_of_one_user_leave_others_their_grants(&other).await;

    sleep_until(first + 2, 0).await;
    let alone = passed(&[&busy], first + 1);
    assert!(alone >= 54, "one Envoy used {alone} of {LIMIT}");
    let slow = Load::start(&other, 6);
    sleep_until(first + 4, 0).await;
    slow.set_rate(0);
    // The other one is idle for 11 s.
    sleep_until(first + 6, 2).await;
    sleep_until(first + 7, 0).await;
    // Grants are for the demand, so a busy Envoy would get all at the start of a window. Four reports lower it.
    busy.set_rate(2);
    // Requests of the rate limit service spend the same budget.
    let rls = spend_by_rls(&server, first + 9).await;
    for window in first..first + 8 {
        passed(&[&busy, &slow], window);
    }
    let (_, busy_alone) = busy.passed(first + 6);
    assert!(busy_alone >= 48, "{busy_alone} beside an idle one");
    let (shared, _) = busy.passed(first + 9);
    println!("{rls} by RLS, {shared} by RLQS");
    assert!(
        rls > 5 && shared > 5 && rls + shared <= LIMIT,
        "{rls} + {shared}"
    );
    for envoy in [&one, &other] {
        assert_nothing_was_ignored(envoy);
    }
    let ungranted = "rate_limiter_envoy_quota_ungranted_total";
    assert_eq!(server.metric(ungranted, "unmatched").await, 0);
    assert!(server.metric(ungranted, "not_utf8").await > 0);
    assert_eq!(
        server
            .metric("rate_limiter_envoy_quota_closed_total", "")
            .await,
        0
    );
}

/// A user whose name is not UTF-8 has a bucket that Envoy cannot be told about. The stream goes on for others.
async fn bytes_of_one_user_leave_others_their_grants(envoy: &Envoy) {
    let strange = [("x-user", &b"a\xff\xfe"[..])];
    assert_eq!(envoy.passed("/", &strange, 5).await, 0);
    for user in [&b"alice"[..], "a\u{fc}".as_bytes()] {
        let user = [("x-user", user)];
        // The first request is denied and reported.
        until(async || (envoy.passed("/", &user, 1).await == 1).then_some(())).await;
        let more = envoy.passed("/", &user, 40).await;
        assert!((5..40).contains(&more), "{more} of a quarter of 40");
        assert_eq!(envoy.passed("/", &strange, 1).await, 0);
    }
}

/// Asks the rate limit service through one window, and returns how many requests passed in it.
async fn spend_by_rls(server: &EnvoyServer, wanted: u64) -> usize {
    let mut passed = 0;
    while window(now()) <= wanted {
        let before = window(now());
        let response = server.ask(request("edge", "generic_key", b"site")).await;
        let is_ok = response.unwrap().overall_code() == Code::Ok;
        passed += usize::from(is_ok && before == wanted && window(now()) == wanted);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    passed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_envoys_stay_within_the_limit_through_failures() {
    let redis = RedisProcess::start(&[]);
    let url = redis.url();
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let args = [
        "--envoy-listen",
        &listen,
        "--redis",
        &url,
        "--on-failure",
        "local",
    ];
    let server = start(CONFIG, &args);
    let [one, other] = [0, 1].map(|_| start_envoy(&[port]));
    for envoy in [&one, &other] {
        ready(envoy).await;
    }
    let first = window(now()) + 1;
    let loads = [Load::start(&one, 12), Load::start(&other, 12)];
    let both = [&loads[0], &loads[1]];

    sleep_until(first + 1, 2).await;
    // SIGKILL.
    drop(server);
    sleep_until(first + 1, 5).await;
    let server = start(CONFIG, &args);
    sleep_until(first + 4, 3).await;
    let recovered = passed(&both, first + 3);
    assert!(recovered >= 54, "{recovered} after the server was back");

    loads[1].set_rate(0);
    other.kill();
    sleep_until(first + 7, 1).await;
    let alone = passed(&[&loads[0]], first + 6);
    assert!(alone >= 48, "{alone} after the other Envoy had ended");

    redis.signal("STOP");
    sleep_until(first + 7, 9).await;
    redis.signal("CONT");
    sleep_until(first + 9, 0).await;
    let back = passed(&both, first + 8);
    assert!(back >= 48, "{back} after Redis was back");
    for window in first..first + 9 {
        passed(&both, window);
    }
    let units = "rate_limiter_envoy_quota_units_total";
    assert!(server.metric(units, r#"state="granted""#).await > 0);
    assert_nothing_was_ignored(&one);
}

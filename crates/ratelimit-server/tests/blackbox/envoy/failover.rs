//! A real Envoy with two servers and one Redis, through outages of each.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ratelimit_tests::redis::RedisProcess;

use super::{
    EnvoyServer,
    process::{Envoy, FilterOptions},
};
use crate::server::until;

const RULES: &str = "
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: generic_key, value: llm, rate_limit: { unit: day, requests_per_unit: 100 } }
  - { key: generic_key, value: desk, rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: generic_key, value: busy, rate_limit: { unit: day, requests_per_unit: 1000000 } }
";

/// Half of the second that Envoy waits: a busy machine takes less than that for a call, and for the rest of a request.
const BUDGET: [&str; 2] = ["--time-budget", "500ms"];

/// One test for all, because an Envoy takes seconds to start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_envoy_keeps_the_limits_through_outages() {
    let mut redis = RedisProcess::start(&[]);
    let local = [
        &BUDGET[..],
        &["--on-failure", "local", "--drain-delay", "3s"],
    ]
    .concat();
    let first = EnvoyServer::start_connected(RULES, &redis.url(), &local).await;
    let second = EnvoyServer::start_connected(RULES, &redis.url(), &local).await;
    let envoy = Envoy::start(&[&first, &second], FilterOptions::FailOpen);
    until(async || envoy.get("/unlimited", &[]).await).await;
    // The first calls of an Envoy wait for its connections and may fail.
    until(async || {
        let (_, fields) = envoy.get("/busy", &[]).await?;
        fields.get("x-ratelimit-limit").map(drop)
    })
    .await;
    let failures = envoy.failures().await;

    charges_tokens_when_a_stream_ends(&envoy, &first).await;
    gives_back_when_a_stream_ends(&envoy, &second).await;
    loses_no_call_while_rules_change(&envoy, [&first, &second]).await;
    limits_by_the_failure_mode_while_redis_is_out(&envoy, &mut redis).await;
    loses_no_call_while_a_server_drains(&envoy, first).await;
    assert_eq!(envoy.failures().await, failures, "{}", envoy.log());

    passes_without_a_server_and_limits_again_with_one(&envoy, second, &mut redis).await;
}

async fn charges_tokens_when_a_stream_ends(envoy: &Envoy, server: &EnvoyServer) {
    for remaining in [58, 16, 0] {
        assert_eq!(envoy.passed("/tokens", &[], 1).await, 1);
        let is_charged =
            async || (server.remaining("generic_key", b"llm").await == remaining).then_some(());
        until(is_charged).await;
    }
    assert_eq!(envoy.passed("/tokens", &[], 2).await, 0);
}

async fn gives_back_when_a_stream_ends(envoy: &Envoy, server: &EnvoyServer) {
    for _ in 0..7 {
        assert_eq!(envoy.passed("/borrow", &[], 1).await, 1);
        let is_given_back =
            async || (server.remaining("generic_key", b"desk").await == 3).then_some(());
        until(is_given_back).await;
    }
}

async fn limits_by_the_failure_mode_while_redis_is_out(envoy: &Envoy, redis: &mut RedisProcess) {
    // Each of the two servers has its own count meanwhile.
    redis.kill();
    let passed = envoy.passed("/user", &[("x-user", b"killed")], 20).await;
    assert!((3..=6).contains(&passed), "{passed}");
    redis.restart();
    redis.signal("STOP");
    let passed = envoy.passed("/user", &[("x-user", b"stopped")], 20).await;
    assert!((3..=6).contains(&passed), "{passed}");
    redis.signal("CONT");
    // Redis decides again: a key appears there.
    until(async || {
        envoy.get("/busy", &[]).await?;
        let keys: usize = redis.command(&["DBSIZE"]).ok()?;
        (keys > 0).then_some(())
    })
    .await;
}

async fn loses_no_call_while_rules_change(envoy: &Envoy, servers: [&EnvoyServer; 2]) {
    let user = [("x-user", &b"early"[..])];
    assert_eq!(envoy.passed("/user", &user, 4).await, 3);
    let rules = RULES.replace("requests_per_unit: 3 }", "requests_per_unit: 5 }");
    let change = async {
        for server in servers {
            server.write_rules(&rules);
        }
        for server in servers {
            // Three are spent still.
            let is_applied = async || (server.remaining("user", b"early").await == 2).then_some(());
            until(is_applied).await;
        }
    };
    under_load(envoy, change).await;
    assert_eq!(envoy.passed("/user", &user, 4).await, 2);
    for server in servers {
        server.write_rules(RULES);
        let is_applied = async || (server.remaining("user", b"late").await == 3).then_some(());
        until(is_applied).await;
    }
}

async fn loses_no_call_while_a_server_drains(envoy: &Envoy, mut server: EnvoyServer) {
    let drain = async {
        server.server.signal("TERM");
        server.server.ended().await
    };
    let status = under_load(envoy, drain).await;
    assert!(status.success(), "{}", server.server.log());
}

/// Does something while requests come all the time. The service answers each of them.
async fn under_load<T>(envoy: &Envoy, work: impl Future<Output = T>) -> T {
    let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let load = async || {
        while !is_over.load(Ordering::Relaxed) {
            let (status, fields) = envoy.get("/busy", &[]).await.unwrap();
            // Without an answer of the service Envoy adds no such field.
            let is_answered = fields.contains_key("x-ratelimit-limit");
            assert!(is_answered, "{status}: {fields:?}");
            answered.fetch_add(1, Ordering::Relaxed);
        }
    };
    let answers = async |more: usize| {
        let wanted = answered.load(Ordering::Relaxed) + more;
        until(async || (answered.load(Ordering::Relaxed) > wanted).then_some(())).await;
    };
    let work = async {
        answers(50).await;
        let done = work.await;
        answers(50).await;
        is_over.store(true, Ordering::Relaxed);
        done
    };
    tokio::join!(work, load(), load(), load(), load()).0
}

async fn passes_without_a_server_and_limits_again_with_one(
    envoy: &Envoy,
    server: EnvoyServer,
    redis: &mut RedisProcess,
) {
    let alice = [("x-user", &b"alice"[..])];
    until(async || {
        let passed = envoy.passed("/user", &alice, 4).await;
        (passed == 0).then_some(())
    })
    .await;
    let listen = server.addr.to_string();
    drop(server);
    assert_eq!(envoy.passed("/user", &alice, 4).await, 4);

    let closed = ["--on-failure", "closed", "--envoy-listen", &listen];
    let closed = [&BUDGET[..], &closed].concat();
    let _server = EnvoyServer::start_connected(RULES, &redis.url(), &closed).await;

    // Counts are as before: nothing passes any more once Envoy knows which of its two servers is back.
    until(async || (envoy.passed("/user", &alice, 10).await == 0).then_some(())).await;
    assert_eq!(envoy.passed("/user", &alice, 10).await, 0);
    assert_eq!(envoy.passed("/user", &[("x-user", b"bob")], 4).await, 3);

    redis.kill();
    assert_eq!(envoy.passed("/user", &[("x-user", b"carol")], 4).await, 0);
}

#[tokio::test]
async fn with_failure_mode_deny_a_real_envoy_denies_while_the_server_is_down() {
    let server = EnvoyServer::start(RULES, &[]);
    let envoy = Envoy::start(&[&server], FilterOptions::Strict);
    let is_answered = async |status: u16| {
        let (answered, _) = envoy.get("/user", &[("x-user", b"alice")]).await?;
        (answered == status).then_some(())
    };
    until(async || is_answered(200).await).await;

    drop(server);

    until(async || is_answered(500).await).await;
}

//! The quota service over gRPC.

use std::{cell::Cell, fs, time::Duration};

use ratelimit_envoy::proto::envoy::service::rate_limit_quota::v3::RateLimitQuotaUsageReports;
use ratelimit_tests::redis::TestRedis;
use tempfile::TempDir;
use tonic::Code;

use super::{
    EnvoyServer,
    quota_client::{QuotaClient, Told, bucket, granted, report, start, usage},
    write_atomically,
};
use crate::server::{binary, until};

const CONFIG: &str = "
[policy.api]
limits = 'fixed_window 60/d'

[[envoy.bucket]]
domain = 'edge'
match = ['user', 'limit=per-user']
policy = 'api'

[[envoy.bucket]]
domain = 'edge'
match = ['limit=wide']
limits = 'fixed_window 1000000/d'
";

const UNITS: &str = "rate_limiter_envoy_quota_units_total";

async fn remaining(server: &EnvoyServer, key: &str) -> u64 {
    let path = format!("/api/v1/rate-limit/remaining?policy=api&key={key}");
    let response = server.server.get(&path).await;
    response.json()["remaining"].as_u64().unwrap()
}

#[tokio::test]
async fn a_grant_is_charged_to_the_budget_that_rest_spends() {
    let server = start(CONFIG, &[]);
    let mut client = QuotaClient::open(&server).await.unwrap();
    let alice = bucket(&[("limit", b"per-user"), ("user", b"alice")]);

    // One passed before: it is charged too. A new holder gets a quarter.
    assert_eq!(granted(&client.ask(&alice, 1).await), 14);
    assert_eq!(remaining(&server, "alice").await, 60 - 1 - 14);

    for spent in 0..45 {
        let path = "/api/v1/rate-limit/check?policy=api&key=alice";
        let response = server.server.get(path).await;
        assert_eq!(response.status, 200, "{spent}");
    }
    // All are granted or spent, and the next grant finds nothing.
    let next = client.ask(&alice, 14).await;
    assert!(
        matches!(next[..], [Told::DenyAll { ttl }] if ttl > 2),
        "{next:?}"
    );
    assert_eq!(server.metric(UNITS, r#"state="granted""#).await, 14);
    assert_eq!(server.metric(UNITS, r#"state="used""#).await, 14);
    assert_eq!(server.metric(UNITS, r#"state="unassigned""#).await, 1);
    assert_eq!(server.metric(UNITS, r#"policy="api""#).await, 29);
}

#[tokio::test]
async fn a_second_stream_gets_what_the_first_leaves_and_a_lost_one_gives_nothing_back() {
    let server = start(CONFIG, &[]);
    let alice = bucket(&[("user", b"alice"), ("limit", b"per-user")]);
    let mut one = QuotaClient::open(&server).await.unwrap();
    let mut other = QuotaClient::open(&server).await.unwrap();
    assert_eq!(granted(&one.ask(&alice, 0).await), 15);
    assert_eq!(granted(&other.ask(&alice, 0).await), 5);
    assert_eq!(
        server.metric("rate_limiter_envoy_quota_streams", "").await,
        2
    );
    assert_eq!(
        server.metric("rate_limiter_envoy_quota_buckets", "").await,
        2
    );

    drop(one);

    until(async || (server.metric(UNITS, r#"state="forfeited""#).await == 15).then_some(())).await;
    assert_eq!(remaining(&server, "alice").await, 40);
    let streams = "rate_limiter_envoy_quota_streams";
    until(async || (server.metric(streams, "").await == 1).then_some(())).await;
}

#[tokio::test]
async fn malformed_reports_affect_their_own_stream_only() {
    let server = start(CONFIG, &[]);
    let mut good = QuotaClient::open(&server).await.unwrap();
    let alice = bucket(&[("limit", b"per-user"), ("user", b"alice")]);
    assert_eq!(granted(&good.ask(&alice, 0).await), 15);

    for bad in [
        RateLimitQuotaUsageReports::default(),
        report("", vec![usage(&alice, 0, 0)]),
    ] {
        let mut client = QuotaClient::open(&server).await.unwrap();
        client.send(bad).await;
        let status = client.next().await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    }
    let mut odd = QuotaClient::open(&server).await.unwrap();
    let mut nameless = usage(&alice, 3, 4);
    nameless.bucket_id = None;
    let huge = bucket(&[("limit", b"per-user"), ("user", &vec![b'x'; 1 << 20])]);
    let empty = bucket(&[]);
    let usages = vec![
        nameless,
        usage(&huge, u64::MAX, u64::MAX),
        usage(&empty, 1, 0),
    ];
    odd.send(report("edge", usages)).await;
    let response = odd.next().await.unwrap().unwrap();
    // More passed than the limit allows, so the huge one is denied. The empty one has no rule.
    let of = |id| response.iter().filter(move |(other, _)| other == id);
    let huge: Vec<_> = of(&huge).collect();
    assert!(
        matches!(huge[..], [(_, Told::DenyAll { .. })]),
        "{}",
        huge.len()
    );
    let empty: Vec<_> = of(&empty).map(|(_, told)| told).collect();
    assert_eq!(empty, [&Told::AllowAll { ttl: 300 }]);
    odd.send(report("other", Vec::new())).await;
    assert_eq!(odd.next().await.unwrap_err().code(), Code::InvalidArgument);

    // Without a domain after the first message, twice in one report, and the stream goes on.
    let bob = bucket(&[("limit", b"per-user"), ("user", b"bob")]);
    good.send(report("", vec![usage(&bob, 1, 0), usage(&bob, 1, 0)]))
        .await;
    let response = good.next().await.unwrap().unwrap();
    assert_eq!(response.len(), 2);
    assert_eq!(remaining(&server, "bob").await, 58 - 14);
    assert_eq!(
        server
            .metric("rate_limiter_envoy_quota_closed_total", "invalid")
            .await,
        3
    );
}

#[tokio::test]
async fn an_id_comes_back_as_it_was() {
    let server = start(CONFIG, &[]);
    for user in [&b"a\0b"[..], b"", "\u{fc}".as_bytes()] {
        // The order of the entries is that of the message.
        for id in [
            bucket(&[("user", user), ("limit", b"per-user")]),
            bucket(&[("limit", b"per-user"), ("user", user)]),
        ] {
            let mut client = QuotaClient::open(&server).await.unwrap();
            assert!(granted(&client.ask(&id, 0).await) > 0, "{user:?}");
        }
    }
}

#[tokio::test]
async fn an_id_that_is_not_utf8_is_charged_and_never_sent() {
    let server = start(CONFIG, &[]);
    let mut client = QuotaClient::open(&server).await.unwrap();
    let strange = bucket(&[("limit", b"per-user"), ("user", b"a\xff")]);
    let alice = bucket(&[("limit", b"per-user"), ("user", b"alice")]);
    let usages = vec![usage(&strange, 7, 0), usage(&alice, 0, 1)];
    client.send(report("edge", usages)).await;

    let response = client.next().await.unwrap().unwrap();

    assert!(response.iter().all(|(id, _)| *id == alice), "{response:?}");
    let ungranted = "rate_limiter_envoy_quota_ungranted_total";
    assert_eq!(server.metric(ungranted, "not_utf8").await, 1);
    assert_eq!(server.metric(UNITS, r#"state="unassigned""#).await, 7);
    assert_eq!(
        server.metric("rate_limiter_envoy_quota_buckets", "").await,
        1
    );
}

#[tokio::test]
async fn buckets_without_a_rule_are_allowed_or_denied_and_counted() {
    let ungranted = "rate_limiter_envoy_quota_ungranted_total";
    for (setting, expected) in [
        ("", Told::AllowAll { ttl: 300 }),
        ("[envoy]\nunmatched = 'deny'\n", Told::DenyAll { ttl: 300 }),
    ] {
        let server = start(&format!("{setting}{CONFIG}"), &[]);
        let mut client = QuotaClient::open(&server).await.unwrap();
        let unknown = bucket(&[("nobody", b"knows")]);
        assert_eq!(client.ask(&unknown, 1).await, [expected]);
        assert_eq!(server.metric(ungranted, "unmatched").await, 1);
    }
}

#[tokio::test]
async fn a_changed_policy_is_granted_anew_within_a_second() {
    let server = start(CONFIG, &[]);
    let mut client = QuotaClient::open(&server).await.unwrap();
    let alice = bucket(&[("limit", b"per-user"), ("user", b"alice")]);
    let wide = bucket(&[("limit", b"wide")]);
    assert_eq!(granted(&client.ask(&alice, 0).await), 15);
    assert_eq!(granted(&client.ask(&wide, 0).await), 250_000);

    let changed = CONFIG.replace("60/d", "28/d");
    write_atomically(&server.rules.path().join("server.toml"), &changed);
    server.server.signal("HUP");

    // The 15 of before are charged, so a quarter of 13 is granted. The other policy is not changed.
    let response = client.next().await.unwrap().unwrap();
    assert!(response.iter().all(|(id, _)| *id == alice), "{response:?}");
    let told: Vec<Told> = response.into_iter().map(|(_, told)| told).collect();
    assert_eq!(granted(&told), 3);
    // The line is written after the rules are replaced, so the response may come before it.
    let reloaded = "reloaded the Envoy rules";
    until(async || server.server.log().contains(reloaded).then_some(())).await;

    let without = CONFIG.replace("'limit=per-user'", "'limit=other'");
    write_atomically(&server.rules.path().join("server.toml"), &without);
    server.server.signal("HUP");
    let response = client.next().await.unwrap().unwrap();
    assert_eq!(response, [(alice, Told::AllowAll { ttl: 300 })]);
}

#[tokio::test]
async fn a_thousand_buckets_are_answered_in_one_response() {
    let redis = TestRedis::start().await;
    let url = redis.url();
    let server = start(CONFIG, &["--redis", url, "--time-budget", "30s"]);
    until(async || {
        let ready = server.server.get("/actuator/health/readiness").await;
        (ready.status == 200).then_some(())
    })
    .await;
    let mut client = QuotaClient::open(&server).await.unwrap();
    let user = |number: u32| {
        bucket(&[
            ("limit", b"per-user"),
            ("user", number.to_string().as_bytes()),
        ])
    };
    let usages = (0..1_000)
        .map(|number| usage(&user(number), 0, 1))
        .collect();

    client.send(report("edge", usages)).await;

    let mut answered = 0;
    let mut responses = 0;
    while answered < 1_000 {
        let response = client.next().await.unwrap().unwrap();
        answered += response
            .iter()
            .filter(|(_, told)| matches!(told, Told::Tokens { max: 15, .. }))
            .count();
        responses += 1;
    }
    // A machine that is busy sends what it has after 200 ms.
    println!("{responses} responses");
    assert!(responses <= 20, "{responses}");
    assert_eq!(
        server
            .metric("rate_limiter_envoy_quota_answer_seconds_count", "")
            .await,
        1
    );
}

#[tokio::test]
async fn too_many_buckets_are_not_kept() {
    let server = start(CONFIG, &[]);
    let mut client = QuotaClient::open(&server).await.unwrap();
    let other = |number: u32| bucket(&[("n", number.to_string().as_bytes())]);
    let usages = (0..100_010)
        .map(|number| usage(&other(number), 0, 1))
        .collect();

    client.send(report("edge", usages)).await;

    let mut lives = [0, 0];
    while lives.iter().sum::<u32>() < 100_010 {
        for (_, told) in client.next().await.unwrap().unwrap() {
            match told {
                Told::AllowAll { ttl: 300 } => lives[0] += 1,
                Told::AllowAll { ttl: 10 } => lives[1] += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(lives, [100_000, 10]);
    let ungranted = "rate_limiter_envoy_quota_ungranted_total";
    assert_eq!(server.metric(ungranted, "overflow").await, 10);
    assert_eq!(
        server.metric("rate_limiter_envoy_quota_buckets", "").await,
        100_000
    );

    // A bucket with a rule is denied, and its requests are charged.
    let alice = bucket(&[("limit", b"per-user"), ("user", b"alice")]);
    assert_eq!(client.ask(&alice, 7).await, [Told::DenyAll { ttl: 10 }]);
    assert_eq!(remaining(&server, "alice").await, 53);
    assert_eq!(server.metric(ungranted, "overflow").await, 11);
}

#[tokio::test]
async fn a_client_that_never_reads_is_closed() {
    let server = start(CONFIG, &[]);
    let deaf = QuotaClient::open(&server).await.unwrap();
    // The client takes 2 MiB before it reads.
    for round in 0_u32..40 {
        let other = |number: u32| {
            let value = format!("{round} {number:0>100}");
            bucket(&[("n", value.as_bytes())])
        };
        let usages = (0..2_000)
            .map(|number| usage(&other(number), 0, 1))
            .collect();
        deaf.try_send(report("edge", usages)).await;
    }

    // An Envoy that does not read reports on. Reports that wait are answered together, so these are answered later.
    let closed = "rate_limiter_envoy_quota_closed_total";
    let number = Cell::new(0_u32);
    until(async || {
        number.set(number.get() + 1);
        let id = bucket(&[("later", number.get().to_string().as_bytes())]);
        deaf.try_send(report("edge", vec![usage(&id, 0, 1)])).await;
        (server.metric(closed, "slow").await == 1).then_some(())
    })
    .await;
    until(async || {
        (server.metric("rate_limiter_envoy_quota_streams", "").await == 0).then_some(())
    })
    .await;
    let mut other = QuotaClient::open(&server).await.unwrap();
    let alice = bucket(&[("limit", b"per-user"), ("user", b"alice")]);
    assert_eq!(granted(&other.ask(&alice, 0).await), 15);
    drop(deaf);
}

#[tokio::test]
async fn a_server_that_ends_grants_nothing_and_ends_its_streams_after_their_grants() {
    let mut server = start(CONFIG, &["--drain-delay", "3s"]);
    let mut client = QuotaClient::open(&server).await.unwrap();
    let alice = bucket(&[("limit", b"per-user"), ("user", b"alice")]);
    let wide = bucket(&[("limit", b"wide")]);
    client.ask(&alice, 0).await;

    server.server.signal("TERM");

    let closed = "rate_limiter_envoy_quota_closed_total";
    until(async || (server.metric(closed, "draining").await == 1).then_some(())).await;
    let refused = QuotaClient::open(&server).await;
    assert_eq!(refused.err().unwrap().code(), Code::Unavailable);
    client.send(report("edge", vec![usage(&wide, 0, 1)])).await;
    assert_eq!(
        client.next().await.unwrap(),
        None,
        "the stream ends without a message"
    );
    assert!(server.server.ended().await.success());
}

#[tokio::test]
async fn no_grant_is_made_without_redis() {
    let redis = ["--redis", "redis://127.0.0.1:1", "--on-failure", "open"];
    let server = start(CONFIG, &redis);
    let mut client = QuotaClient::open(&server).await.unwrap();
    let alice = bucket(&[("limit", b"per-user"), ("user", b"alice")]);
    client.send(report("edge", vec![usage(&alice, 1, 0)])).await;

    let answered = tokio::time::timeout(Duration::from_millis(2_500), client.next()).await;

    assert!(answered.is_err(), "{answered:?}");
    assert_eq!(server.metric(UNITS, "granted").await, 0);
}

#[test]
fn check_config_refuses_policies_that_grants_cannot_carry() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.toml");
    for (limits, code) in [
        ("20/s burst 20", "rlqs-too-fine"),
        ("fixed_window 5/s", "rlqs-too-fine"),
        ("concurrency 5", "bad-limit"),
        ("leaky_bucket 100/min", "bad-limit"),
        ("100/min; penalty_box 5/min for 1h", "bad-limit"),
    ] {
        for (own, line) in [
            (
                format!(
                    "[[envoy.bucket]]\ndomain = 'edge'\nmatch = ['user']\nlimits = '{limits}'\n"
                ),
                2,
            ),
            (
                format!(
                    "[[envoy.bucket]]\ndomain = 'edge'\nmatch = ['user']\npolicy = 'fine'\n[policy.fine]\nlimits = '{limits}'\n"
                ),
                5,
            ),
        ] {
            fs::write(&path, format!("envoy-listen = '127.0.0.1:0'\n{own}")).unwrap();
            let output = binary().arg("check-config").arg(&path).output().unwrap();
            let out = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(1), "{out}");
            assert!(
                out.contains(&format!("server.toml:{line}: error[{code}]")),
                "{out}"
            );
            let output = binary()
                .args(["--listen", "127.0.0.1:0", "--config"])
                .arg(&path)
                .output()
                .unwrap();
            let error = String::from_utf8(output.stderr).unwrap();
            assert!(error.contains(&format!("error[{code}]")), "{error}");
        }
    }
}

//! Policies with their settings and rates.

use std::{fmt::Write as _, fs, time::Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::{CHECK, Server, until};

const POLICIES: &str = "/console/api/policies";

fn names(list: &Value) -> Vec<&str> {
    let policies = list["policies"].as_array().unwrap();
    let names = policies.iter().map(|policy| policy["name"].as_str());
    names.map(Option::unwrap).collect()
}

/// A server with a file of these policies.
fn with_policies(dir: &TempDir, policies: &str) -> Server {
    let path = dir.path().join("server.toml");
    fs::write(&path, policies).unwrap();
    Server::start_admin(&["--config", path.to_str().unwrap()])
}

#[tokio::test]
async fn a_policy_is_listed_with_its_modes() {
    let dir = TempDir::new().unwrap();
    let server = with_policies(
        &dir,
        r#"
[policy.login]
limits = "5/min; 20/h"
on_failure = "closed"
enforced = 10
throttle = "soft 10%"
[policy.seen]
limits = "fixed_window 3/h"
shadow = true
"#,
    );

    let list = server.get(POLICIES).await.json();

    assert_eq!(list["total"], 7);
    assert_eq!(list["next"], Value::Null);
    assert_eq!(
        names(&list),
        [
            "fixed_window",
            "leaky_bucket",
            "login",
            "seen",
            "sliding_window_counter",
            "sliding_window_log",
            "token_bucket"
        ]
    );
    assert_eq!(
        list["policies"][2],
        json!({
            "name": "login",
            "text": "token_bucket 5/min; token_bucket 20/h",
            "shadow": false,
            "enforced": 10,
            "throttle": "soft 10%",
            "onFailure": "closed",
            "builtIn": false,
            "peek": true,
            "checks": 0.0,
            "denied": 0.0,
            "wouldDeny": 0.0,
            "decidedBy": {"store": 0.0, "fallback": 0.0, "prefetched": 0.0, "denyCache": 0.0},
            "p99Micros": null,
        })
    );
    let seen = &list["policies"][3];
    assert_eq!(
        (&seen["shadow"], &seen["enforced"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(list["policies"][0]["builtIn"], true);
    assert_eq!(list["policies"][0]["onFailure"], "local");
}

#[tokio::test]
async fn a_policy_is_told_with_all_its_terms() {
    let dir = TempDir::new().unwrap();
    let server = with_policies(
        &dir,
        r#"
path-header = "x-path"
hops = 1
[policy.api]
limits = "token_bucket 5/min; 100/h by ip"
cost = "header:X-Tokens"
charge_on = [401, "5xx"]
settle = "header:x-used"
exempt = ["10.0.0.0/8", "secret:api-key:s3cr3t"]
blocked = ["path:/old/*"]
blocked_status = 429
prefetch = "10%"
[policy.api.tiers]
pro = "1000/min"
[policy.api.tenants]
acme = "pro"
"secret:api-key:s3cr3t" = "pro"
"#,
    );

    let response = server.get(&format!("{POLICIES}/api")).await;

    assert!(!response.body.contains("s3cr3t"), "{}", response.body);
    let api = response.json();
    assert_eq!(api["prefetch"], 10);
    assert_eq!(api["cost"], "header:x-tokens");
    assert_eq!(api["charge_on"], json!(["5xx", "401"]));
    assert_eq!(api["settle"], "header:x-used");
    assert_eq!(
        api["limits"],
        json!([
            {
                "text": "token_bucket 5/min", "algorithm": "TOKEN_BUCKET", "limit": 5, "periodMicros": 60_000_000,
                "by": null, "words": "5 at once, then one every 12 s",
            },
            {
                "text": "token_bucket 100/h", "algorithm": "TOKEN_BUCKET", "limit": 100,
                "periodMicros": 3_600_000_000_u64, "by": "ip", "words": "100 at once, then one every 36 s",
            },
        ])
    );
    assert_eq!(api["tiers"], json!({"pro": "token_bucket 1000/min"}));
    assert_eq!(api["tenants"]["total"], 2);
    assert_eq!(api["tenants"]["first"]["acme"], "pro");
    assert_eq!(api["exempt"], json!(["10.0.0.0/8", "secret:api-key:..."]));
    assert_eq!(api["blocked"], json!(["path:/old/*"]));
    assert_eq!(api["blockedStatus"], 429);

    let plain = server.get(&format!("{POLICIES}/TOKEN_BUCKET")).await.json();
    assert_eq!(plain["name"], "token_bucket");
    assert_eq!(
        (&plain["cost"], &plain["settle"]),
        (&json!(1), &Value::Null)
    );
    server.get(&format!("{POLICIES}/nobody")).await.problem(404);
    server.get(&format!("{POLICIES}/%FF")).await.problem(400);
}

#[tokio::test]
async fn ten_thousand_policies_are_filtered_and_paged() {
    let dir = TempDir::new().unwrap();
    let mut file = "[policy]\n".to_owned();
    for number in 0..10_000 {
        writeln!(file, "tenant-{number} = '{}/min'", number + 1).unwrap();
    }
    let server = with_policies(&dir, &file);

    for sort in ["name", "checks", "denied", "wouldDeny"] {
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let page = format!("{POLICIES}?sort={sort}&limit=1000&after={after}");
            let page = server.get(&page).await.json();
            assert_eq!(page["total"], 10_005);
            all.extend(names(&page).into_iter().map(str::to_owned));
            match page["next"].as_str() {
                Some(next) => next.clone_into(&mut after),
                None => break,
            }
        }
        assert_eq!(all.len(), 10_005, "{sort}");
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 10_005, "{sort}");
    }

    for query in ["q=TENANT-99", "q=10000/min", "sort=denied"] {
        let started = Instant::now();
        let found = server.get(&format!("{POLICIES}?{query}")).await.json();
        println!("{query}: {:?}", started.elapsed());
        let total = match query {
            "q=TENANT-99" => 111,
            "q=10000/min" => 1,
            _ => 10_005,
        };
        assert_eq!(found["total"], total, "{query}");
        let shown = found["policies"].as_array().unwrap().len();
        assert_eq!(shown, total.min(100));
    }
}

#[tokio::test]
async fn a_page_that_cannot_be_meant_is_refused() {
    let server = Server::start_admin(&[]);

    for query in [
        "sort=size",
        "sort=",
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=",
        "limit=1&limit=1",
        "q=%FF",
    ] {
        let refused = server.get(&format!("{POLICIES}?{query}")).await;
        refused.problem(400);
    }
    let gone = server.get(&format!("{POLICIES}?after=m")).await.json();
    assert_eq!(
        names(&gone),
        [
            "sliding_window_counter",
            "sliding_window_log",
            "token_bucket"
        ]
    );
}

#[tokio::test]
async fn the_policies_of_a_reload_are_listed() {
    let dir = TempDir::new().unwrap();
    let server = with_policies(&dir, "[policy]\nlogin = '5/min'\n");
    assert_eq!(server.get(&format!("{POLICIES}/login")).await.status, 200);

    fs::write(dir.path().join("server.toml"), "[policy]\nsearch = '9/s'\n").unwrap();
    server.signal("HUP");

    until(async || {
        let found = server.get(&format!("{POLICIES}/search")).await;
        (found.status == 200).then_some(())
    })
    .await;
    server.get(&format!("{POLICIES}/login")).await.problem(404);
}

#[tokio::test]
async fn rules_of_envoy_are_policies_like_others() {
    let dir = TempDir::new().unwrap();
    let rules = dir.path().join("rules");
    fs::create_dir(&rules).unwrap();
    let edge = |requests: u32| {
        format!(
            "domain: edge\ndescriptors:\n  - key: user\n    rate_limit: {{unit: minute, requests_per_unit: {requests}}}\n  \
             - {{key: path, shadow_mode: true, rate_limit: {{unit: hour, requests_per_unit: 2}}}}\n"
        )
    };
    fs::write(rules.join("edge.yaml"), edge(5)).unwrap();
    let path = dir.path().join("server.toml");
    let file = r#"
[policy]
plan = "9/s"
[[envoy.rule]]
domain = "own"
match = ["plan"]
policy = "plan"
[[envoy.rule]]
domain = "own"
match = ["user"]
limits = "token_bucket 7/min"
"#;
    fs::write(&path, file).unwrap();
    let server = Server::start_admin(&[
        "--config",
        path.to_str().unwrap(),
        "--envoy-listen",
        "127.0.0.1:0",
        "--envoy-config",
        rules.to_str().unwrap(),
    ]);

    let list = server.get(&format!("{POLICIES}?q=rls:")).await.json();

    assert_eq!(
        names(&list),
        ["rls:edge:path", "rls:edge:user", "rls:own:user"]
    );
    let [watched, user, own] = list["policies"].as_array().unwrap().as_slice() else {
        panic!("{list}")
    };
    assert_eq!(user["text"], "fixed_window 5/min");
    assert_eq!(user["throttle"], "hard");
    assert_eq!(
        user["envoy"],
        json!({"domain": "edge", "role": "must", "quotaService": false})
    );
    assert_eq!(watched["envoy"]["role"], "watch");
    assert_eq!(user["peek"], false);
    assert!(user["peekReason"].as_str().unwrap().contains("Envoy rule"));
    assert_eq!(
        (&watched["shadow"], &watched["enforced"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(own["text"], "token_bucket 7/min");
    let detail = server
        .get(&format!("{POLICIES}/rls:edge:user"))
        .await
        .json();
    assert_eq!(
        detail["limits"][0]["words"],
        "5 in each window of 1 min, windows begin by the clock"
    );
    let plan = server.get(&format!("{POLICIES}?q=plan")).await.json();
    assert_eq!(names(&plan), ["plan"], "once");

    fs::write(rules.join("edge.yaml"), edge(6)).unwrap();
    until(async || {
        let detail = server.get(&format!("{POLICIES}/rls:edge:user")).await;
        (detail.json()["text"] == "fixed_window 6/min").then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_rates_of_a_policy_are_those_of_its_checks() {
    let server = Server::start_admin(&["--policy", "login=fixed_window 10/d"]);

    until(async || {
        for _ in 0..40 {
            server.get(&format!("{CHECK}?policy=login&key=a")).await;
        }
        let login = server.get(&format!("{POLICIES}/login")).await.json();
        let rate = |name: &str| login[name].as_f64().unwrap();
        assert!(rate("denied") <= rate("checks"));
        let decided = login["decidedBy"]["store"].as_f64().unwrap();
        (rate("denied") > 0.0 && decided > 0.0).then_some(())
    })
    .await;

    let busiest = server.get(&format!("{POLICIES}?sort=checks")).await.json();
    assert_eq!(names(&busiest)[0], "login");
}

#[tokio::test]
async fn with_envoy_shadow_every_rule_is_in_shadow_mode() {
    let dir = TempDir::new().unwrap();
    let edge =
        "{domain: edge, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 5}}]}";
    fs::write(dir.path().join("edge.yaml"), edge).unwrap();
    let directory = dir.path().to_str().unwrap();
    let envoy = [
        "--envoy-listen",
        "127.0.0.1:0",
        "--envoy-config",
        directory,
        "--envoy-shadow",
    ];
    let server = Server::start_admin(&envoy);

    let user = server
        .get(&format!("{POLICIES}/rls:edge:user"))
        .await
        .json();

    assert_eq!(
        (&user["shadow"], &user["enforced"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(user["envoy"]["role"], "must");
}

#[tokio::test]
async fn limits_match_in_any_case_and_a_name_is_no_rank() {
    let server = Server::start_admin(&["--policy", "named=9/h by Tenant"]);

    let found = server
        .get(&format!("{POLICIES}?q=BY%20TENANT"))
        .await
        .json();
    let after = format!("{POLICIES}?sort=checks&after=inf:x");
    let behind = server.get(&after).await.json();

    assert_eq!(names(&found), ["named"]);
    assert!(names(&behind).contains(&"named"), "{behind}");
    assert!(
        names(&behind).iter().all(|name| *name > "inf:x"),
        "{behind}"
    );
}

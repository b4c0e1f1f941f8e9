//! Who is denied most, over REST and in the log.

use serde_json::json;

use crate::server::{CHECK, OFFENDERS, RESET, Server};

async fn deny(server: &Server, policy: &str, key: &str, times: usize) {
    for _ in 0..times {
        let path = format!("{CHECK}?policy={policy}&key={key}&permits=9");
        assert_eq!(server.get(&path).await.status, 429);
    }
}

const POLICIES: [&str; 4] = [
    "--policy",
    "one=fixed_window 1/d",
    "--policy",
    "two=2/h; 5/d",
];

#[tokio::test]
async fn the_most_denied_keys_of_each_policy_are_listed() {
    let args = [&POLICIES[..], &["--offender-keys", "shown"]].concat();
    let server = Server::start_admin(&args);
    deny(&server, "one", "alice", 2).await;
    deny(&server, "one", "bob", 5).await;
    deny(&server, "two", "carol", 1).await;

    let told = server.get(OFFENDERS).await.json();

    let (alice, bob, carol) = (
        json!({"key": "alice", "denied": 2, "error": 0, "watched": 0}),
        json!({"key": "bob", "denied": 5, "error": 0, "watched": 0}),
        json!({"key": "carol", "denied": 1, "error": 0, "watched": 0}),
    );
    let all = json!({"policies": {"one": [bob, alice], "two": [carol]}});
    assert_eq!(told, all);
    let worst = server.get(&format!("{OFFENDERS}?policy=one&most=1")).await;
    assert_eq!(worst.json(), json!({"policies": {"one": [bob]}}));
    let none = server
        .get(&format!("{OFFENDERS}?policy=FIXED_WINDOW"))
        .await;
    assert_eq!(none.json(), json!({"policies": {"fixed_window": []}}));
    for bad in ["policy=none", "most=0", "most=101", "most=", "most=+1"] {
        server.get(&format!("{OFFENDERS}?{bad}")).await.problem(400);
    }
}

#[tokio::test]
async fn denials_of_a_policy_in_shadow_mode_are_listed_by_themselves() {
    let dir = tempfile::TempDir::new().unwrap();
    let file = "admin-without-token: true\noffender-keys: shown\npolicy:\n  tried: {limits: fixed_window 1/d, shadow: true}\n";
    let server = Server::with_file(&dir, file);
    let path = format!("{CHECK}?policy=tried&key=alice&permits=9");
    assert_eq!(server.get(&path).await.status, 200);

    let told = server.get(OFFENDERS).await.json();

    let alice = json!({"key": "alice", "denied": 1, "error": 0, "watched": 1});
    assert_eq!(
        told,
        json!({"policies": {"tried": []}, "shadow": {"tried": [alice]}})
    );
}

#[tokio::test]
async fn an_offender_under_a_limit_by_name_names_it() {
    let limits = "mix=fixed_window 9/d; fixed_window 1/d by tenant; fixed_window 2/d by ip; \
                  fixed_window 3/d by header:x-org; fixed_window 100/d by A:b";
    let server = Server::start_admin(&["--policy", limits, "--offender-keys", "shown"]);
    let check = |tenant: &str, permits: u64| {
        format!(
            "{CHECK}?policy=mix&key=alice&keys.tenant={tenant}&keys.ip=203.0.113.7\
             &keys.header:x-org=o&keys.A:b=c&permits={permits}"
        )
    };
    assert_eq!(server.get(&check("a%2Fb", 1)).await.status, 200);
    assert_eq!(server.get(&check("a%2Fb", 1)).await.status, 429);

    let told = server.get(OFFENDERS).await.json();

    let tenant =
        json!({"key": "tenant:a%2Fb", "by": "tenant", "denied": 1, "error": 0, "watched": 0});
    assert_eq!(told, json!({"policies": {"mix": [tenant]}}));
    let reset = format!("{RESET}?policy=mix&key=nobody&keys.tenant=a%2Fb");
    assert_eq!(server.delete(&reset).await.status, 200);
    assert_eq!(server.get(&check("a%2Fb", 1)).await.status, 200);
    // Two of two are spent by the address.
    assert_eq!(server.get(&check("other", 1)).await.status, 429);
    let told = server.get(OFFENDERS).await.json();
    let address =
        json!({"key": "ip:203.0.113.7", "by": "ip", "denied": 1, "error": 0, "watched": 0});
    let entries = told["policies"]["mix"].as_array().unwrap();
    assert!(entries.contains(&address), "{told}");
}

#[tokio::test]
async fn keys_are_hidden_by_default() {
    let args = [&POLICIES[..], &["--log-offenders", "1ms"]].concat();
    let server = Server::start_admin(&args);
    deny(&server, "one", "alice", 3).await;

    let told = server.get(OFFENDERS).await.body;

    let digest = "sha256~ce597ac46d430f16";
    assert!(told.contains(digest) && !told.contains("alice"), "{told}");
    let log = server.log();
    assert!(log.contains(digest) && !log.contains("alice"), "{log}");
}

#[tokio::test]
async fn the_log_names_keys_where_it_may() {
    let args = [&POLICIES[..], &["--log-offenders", "1ms", "--log-keys"]].concat();
    let server = Server::start_admin(&args);

    deny(&server, "one", "alice", 3).await;

    let log = server.log();
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("key:alice"))
        .collect();
    assert!(!lines.is_empty(), "{log}");
    for line in lines {
        assert!(
            line.contains("the most denied keys policy=\"one\" denied="),
            "{log}"
        );
    }
}

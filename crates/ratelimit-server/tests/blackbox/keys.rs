//! The keys of a check: which budgets it spends, and how a shown key names them again.

use std::fs;

use http::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::server::{CHECK, EXPLAIN, OFFENDERS, REMAINING, RESET, Server};

const FORWARD_AUTH: &str = "/api/v1/rate-limit/forward-auth";
const POLICIES: &str = include_str!("../../../../docs/guides/policies.md");

/// The login policy of docs/guides/policies.md.
fn login_server() -> (TempDir, Server) {
    let (_, section) = POLICIES.split_once("\n## Login\n").unwrap();
    let (_, rest) = section.split_once("```toml\n").unwrap();
    let (policy, _) = rest.split_once("```").unwrap();
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("login.toml");
    fs::write(&path, format!("trusted = ['127.0.0.1']\n{policy}")).unwrap();
    let server = Server::start(&["--config", path.to_str().unwrap()]);
    (dir, server)
}

#[tokio::test]
async fn the_login_example_counts_by_account_and_by_address() {
    let (_dir, server) = login_server();
    let attempt =
        |account: &str, ip: &str| json!({"policy": "login", "key": account, "keys": {"ip": ip}});
    let allowed = async |checks: Vec<serde_json::Value>| {
        let body = json!({ "checks": checks }).to_string();
        let answer = server.post(CHECK, body).await.json();
        let results = answer["results"].as_array().unwrap().clone();
        let allowed = results.iter().filter(|it| it["allowed"] == true);
        allowed.count()
    };

    // One address tries six accounts, and one account is tried from twelve addresses.
    let accounts = (0..6).map(|number| attempt(&format!("user-{number}"), "203.0.113.7"));
    assert_eq!(allowed(accounts.collect()).await, 5);
    let addresses = (0..12).map(|number| attempt("alice", &format!("198.51.100.{number}")));
    assert_eq!(allowed(addresses.collect()).await, 10);
    // Addresses of one /64 are one client.
    let hosts =
        (0..6).map(|number| attempt(&format!("host-{number}"), &format!("2001:db8::{number}")));
    assert_eq!(allowed(hosts.collect()).await, 5);
}

#[tokio::test]
async fn a_check_without_a_key_that_its_policy_needs_is_refused() {
    let (_dir, server) = login_server();

    for path in [CHECK, REMAINING] {
        let detail = server.get(&format!("{path}?policy=login&key=alice")).await;
        assert!(detail.problem(400).contains("keys.ip="), "{path}");
    }
    let body = r#"{"policy":"login","key":"alice","keys":{"pi":"203.0.113.7"}}"#;
    let detail = server.post(CHECK, body).await.problem(400);
    assert!(detail.contains(r#""keys":{"ip":"#), "{detail}");
    for bad in [
        "keys.ip=alice",
        "keys.ip=",
        "keys.ip=1.1.1.1&keys.ip=2.2.2.2",
    ] {
        let asked = format!("{CHECK}?policy=login&key=alice&{bad}");
        server.get(&asked).await.problem(400);
    }
    let asked = format!("{CHECK}?policy=login&key=alice&keys.ip=203.0.113.7");
    assert_eq!(server.get(&asked).await.status, 200);
}

#[tokio::test]
async fn forward_auth_finds_addresses_and_headers() {
    let server = Server::start(&[
        "--trusted",
        "127.0.0.1",
        "--policy",
        "site=fixed_window 100/d; fixed_window 2/d by ip; fixed_window 3/d by header:x-tenant",
        "--policy",
        "api=fixed_window 100/d; fixed_window 1/d by route",
    ]);
    let ask = async |query: &str, client: &str, tenant: &str| {
        let path = format!("{FORWARD_AUTH}?{query}");
        let request = server.request(Method::GET, &path);
        let request = request.header("x-forwarded-for", client);
        server.send(request.header("x-tenant", tenant), "").await
    };

    // One user: each address passes twice, and each tenant three times.
    let user = "policy=site&key=alice";
    for (client, tenant, status) in [
        ("203.0.113.1", "acme", 200),
        ("203.0.113.1", "acme", 200),
        ("203.0.113.1", "acme", 429),
        ("203.0.113.2", "acme", 200),
        ("203.0.113.3", "acme", 429),
        ("203.0.113.3", "globex", 200),
    ] {
        let answer = ask(user, client, tenant).await;
        assert_eq!(answer.status, status, "{client} {tenant}");
    }

    // Only the proxy knows routes.
    let detail = ask("policy=api", "203.0.113.1", "acme").await.problem(400);
    assert!(detail.contains("keys.route="), "{detail}");
    for (route, status) in [("/a", 200), ("/a", 429), ("/b", 200)] {
        let query = format!("policy=api&keys.route={route}");
        assert_eq!(ask(&query, "203.0.113.1", "acme").await.status, status);
    }
}

#[tokio::test]
async fn a_shown_key_names_its_budget_in_every_call() {
    let server = Server::start(&[
        "--admin-without-token",
        "--offender-keys",
        "shown",
        "--policy",
        "one=fixed_window 1/d",
    ]);
    let long = "x".repeat(256);
    for key in ["", "&key=alice", &format!("&key={long}")] {
        let shown = server.get(&format!("{CHECK}?policy=one{key}")).await.json();
        let shown = shown["key"].as_str().unwrap();
        assert_eq!(
            server.get(&format!("{CHECK}?policy=one{key}")).await.status,
            429
        );

        let again = format!("policy=one&key={shown}");
        for path in [REMAINING, EXPLAIN] {
            let answer = server.get(&format!("{path}?{again}")).await.json();
            assert_eq!(answer["allowed"], false, "{path} {shown}");
        }
        assert_eq!(server.get(&format!("{CHECK}?{again}")).await.status, 429);
        let reset = server.delete(&format!("{RESET}?{again}")).await;
        assert_eq!(reset.json()["reset"], true);
        assert_eq!(
            server.get(&format!("{CHECK}?policy=one{key}")).await.status,
            200,
            "{shown}"
        );
    }

    let offenders = server.get(OFFENDERS).await.json();
    for offender in offenders["policies"]["one"].as_array().unwrap() {
        let key = offender["key"].as_str().unwrap();
        let reset = server
            .delete(&format!("{RESET}?policy=one&key={key}"))
            .await;
        assert_eq!(reset.status, 200);
        let answer = server
            .get(&format!("{REMAINING}?policy=one&key={key}"))
            .await;
        assert_eq!(answer.json()["remaining"], 1, "{key}");
    }
    for key in ["", "&key=alice", &format!("&key={long}")] {
        let answer = server.get(&format!("{REMAINING}?policy=one{key}")).await;
        assert_eq!(answer.json()["remaining"], 1, "{key}");
    }
}

#[tokio::test]
async fn a_fingerprint_is_refused_as_a_key() {
    let server = Server::start(&["--admin-without-token"]);

    let asked = format!("{RESET}?key=sha256~ce597ac46d430f16");
    let detail = server.delete(&asked).await.problem(400);

    assert!(detail.contains("fingerprint"), "{detail}");
}

#[tokio::test]
async fn a_reset_of_one_key_leaves_the_budget_of_all() {
    let server = Server::start_admin(&[
        "--policy",
        "mix=fixed_window 9/d; fixed_window 2/d by global",
    ]);
    let check = |key: &str| format!("{CHECK}?policy=mix&key={key}");
    for key in ["one", "two"] {
        assert_eq!(server.get(&check(key)).await.status, 200);
    }

    server
        .delete(&format!("{RESET}?policy=mix&key=other"))
        .await;
    assert_eq!(server.get(&check("three")).await.status, 429);

    server
        .delete(&format!("{RESET}?policy=mix&key=other&keys.global=all"))
        .await;
    assert_eq!(server.get(&check("three")).await.status, 200);
}

#[tokio::test]
async fn a_reset_of_named_keys_alone_leaves_the_budget_of_the_caller() {
    let server = Server::start_admin(&[
        "--policy",
        "multi=fixed_window 5/d; fixed_window 5/d by tenant; fixed_window 5/d by route",
        "--log-format",
        "json",
    ]);
    let query = "policy=multi&keys.tenant=acme&keys.route=login";
    assert_eq!(server.get(&format!("{CHECK}?{query}")).await.status, 200);
    let remaining = async || {
        let explained = server.get(&format!("{EXPLAIN}?{query}")).await.json();
        let limits = explained["limits"].as_array().unwrap().clone();
        limits
            .iter()
            .map(|limit| limit["remaining"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(remaining().await, [4, 4, 4]);

    let reset = format!("{RESET}?policy=multi&keys.tenant=acme");
    let reset = server.delete(&reset).await.json();

    let expected = json!({"algorithm": "FIXED_WINDOW", "policy": "multi", "reset": true});
    assert_eq!(reset, expected);
    assert_eq!(remaining().await, [4, 5, 4]);
    let log = server.log();
    let audit = log
        .lines()
        .find(|line| line.contains("\"call\":\"reset\""))
        .unwrap();
    let audit: serde_json::Value = serde_json::from_str(audit).unwrap();
    assert!(
        audit.get("key").is_none() && audit["keys"].as_str().unwrap().starts_with("tenant="),
        "{audit}"
    );

    let misspelt = format!("{RESET}?policy=multi&keys.tennant=acme");
    let misspelt = server.delete(&misspelt).await;
    assert_eq!(misspelt.status, 400);
    assert_eq!(remaining().await, [4, 5, 4]);

    server.delete(&format!("{RESET}?policy=multi")).await;
    assert_eq!(remaining().await, [5, 5, 4]);
}

#[tokio::test]
async fn a_named_key_has_the_bounds_of_a_key() {
    let server = Server::start(&["--policy", "p=5/h by route"]);
    for text in ["a%00", "a%0Ab", &"x".repeat(300)] {
        let path = format!("{CHECK}?policy=p&key=k&keys.route={text}");
        server.get(&path).await.problem(400);
    }
}

#[tokio::test]
async fn a_key_pattern_applies_to_named_keys_but_addresses() {
    let policy = "p=5/h; 5/h by tenant; 5/h by ip";
    let server = Server::start(&["--key-pattern", "t[0-9]+", "--policy", policy]);
    let check = async |tenant: &str| {
        let path = format!("{CHECK}?policy=p&key=t1&keys.ip=203.0.113.7&keys.tenant={tenant}");
        server.get(&path).await
    };

    assert_eq!(check("t2").await.status, 200);
    let detail = check("acme").await.problem(400);
    assert!(detail.starts_with("keys.tenant does not match"), "{detail}");
}

#[tokio::test]
async fn offenders_and_explain_name_the_key_that_the_limit_counts_by() {
    let policy = "login=9/min; fixed_window 1/h by ip";
    let args = ["--policy", policy, "--offender-keys", "shown", "--log-keys"];
    let log = ["--log", "info,ratelimit_core=debug"];
    let server = Server::start_admin(&[&args[..], &log].concat());
    for (account, status) in [("alice", 200), ("bob", 429), ("carol", 429)] {
        let path = format!("{CHECK}?policy=login&key={account}&keys.ip=203.0.113.7");
        assert_eq!(server.get(&path).await.status, status);
    }

    let offenders = server.get(OFFENDERS).await.json();
    let address =
        json!([{"key": "ip:203.0.113.7", "by": "ip", "denied": 2, "error": 0, "watched": 0}]);
    assert_eq!(offenders["policies"]["login"], address);
    let log = server.log();
    assert!(
        log.contains("ip:203.0.113.7") && !log.contains("bob"),
        "{log}"
    );

    let path = format!("{EXPLAIN}?policy=login&key=bob&keys.ip=203.0.113.7");
    let explained = server.get(&path).await.json();
    let expected = "fixed_window 1/h by ip has 0 left of 1";
    assert_eq!(explained["reason"], expected);
    assert_eq!(explained["limits"][0].get("by"), None);
    assert_eq!(explained["limits"][1]["by"], "ip");

    // The shown key names the budget that denied.
    let reset = format!("{RESET}?policy=login&key=ip:203.0.113.7");
    assert_eq!(server.delete(&reset).await.status, 200);
    let path = format!("{CHECK}?policy=login&key=bob&keys.ip=203.0.113.7");
    assert_eq!(server.get(&path).await.status, 200);
}

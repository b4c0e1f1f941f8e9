//! Client keys of pasted headers.

use serde_json::{Value, json};

use crate::server::{Server, binary};

const CLIENT_KEY: &str = "/console/api/client-key";

async fn find(server: &Server, asked: Value) -> Value {
    let response = server.post(CLIENT_KEY, asked.to_string()).await;
    assert_eq!(response.status, 200, "{response:?}");
    response.json()
}

fn verdicts(found: &Value) -> Vec<(&str, &str)> {
    let steps = found["steps"].as_array().unwrap().iter();
    let text = |step: &'_ Value, name: &str| step[name].as_str().map(str::len);
    steps
        .inspect(|step| assert!(text(step, "from").is_some()))
        .map(|step| {
            (
                step["value"].as_str().unwrap(),
                step["verdict"].as_str().unwrap(),
            )
        })
        .collect()
}

#[tokio::test]
async fn the_walk_ends_at_the_client() {
    let server = Server::start_admin(&["--trusted", "10.0.0.0/8"]);

    let found = find(
        &server,
        json!({
            "peer": "10.0.0.1:4711",
            "headers": "Host: shop\r\nX-Forwarded-For: 6.6.6.6, 203.0.113.9, 10.0.0.2\r\n",
            "query": "",
            "trusted": null,
        }),
    )
    .await;

    assert_eq!(
        found,
        json!({
            "key": "ip:203.0.113.9",
            "source": "xff",
            "by": "X-Forwarded-For",
            "steps": [
                {"from": "the connection", "value": "10.0.0.1", "verdict": "trusted"},
                {"from": "X-Forwarded-For", "value": "10.0.0.2", "verdict": "trusted"},
                {"from": "X-Forwarded-For", "value": "203.0.113.9", "verdict": "client"},
                {"from": "X-Forwarded-For", "value": "6.6.6.6", "verdict": "not_read"},
            ],
            "advice": [],
        })
    );
}

#[tokio::test]
async fn an_untrusted_private_peer_gets_the_advice_of_the_log() {
    let server = Server::start_admin(&[]);
    let asked = json!({"peer": "10.0.0.1", "headers": "X-Forwarded-For: 203.0.113.9"});

    let found = find(&server, asked).await;

    assert_eq!(
        (&found["key"], &found["by"]),
        (&json!("ip:10.0.0.1"), &json!("the connection"))
    );
    assert_eq!(
        verdicts(&found),
        [("10.0.0.1", "peer_untrusted"), ("203.0.113.9", "not_read")]
    );
    let advice = found["advice"][0].as_str().unwrap();
    assert!(
        advice.starts_with("10.0.0.1 is a private address, sends X-Forwarded-For"),
        "{advice}"
    );
    assert!(advice.ends_with("add --trusted 10.0.0.1"), "{advice}");

    let trusting = json!({"peer": "10.0.0.1", "headers": "X-Forwarded-For: 203.0.113.9", "trusted": ["10.0.0.1"]});
    let found = find(&server, trusting).await;
    assert_eq!(
        (&found["key"], &found["advice"]),
        (&json!("ip:203.0.113.9"), &json!([]))
    );
}

#[tokio::test]
async fn trusted_proxies_of_the_call_replace_those_of_the_server() {
    let server = Server::start_admin(&["--trusted", "10.0.0.0/8", "--ipv6-prefix", "48"]);
    let headers = "X-Forwarded-For: 2001:db8:1:2::3";
    let asked =
        |trusted: Value| json!({"peer": "10.0.0.1", "headers": headers, "trusted": trusted});

    let own = find(&server, asked(Value::Null)).await;
    let none = find(&server, asked(json!([]))).await;

    assert_eq!(
        own["key"], "ip:2001:db8:1::/48",
        "with the prefix of the server"
    );
    assert_eq!(none["key"], "ip:10.0.0.1");
}

#[tokio::test]
async fn an_element_that_is_no_address_ends_the_walk() {
    let server = Server::start_admin(&["--trusted", "10.0.0.0/8"]);
    let headers = "X-Forwarded-For: 203.0.113.9, <img src=x onerror=alert(1)>, 10.0.0.2";

    let found = find(&server, json!({"peer": "10.0.0.1", "headers": headers})).await;

    assert_eq!(found["key"], "ip:10.0.0.2");
    assert_eq!(
        verdicts(&found),
        [
            ("10.0.0.1", "trusted"),
            ("10.0.0.2", "client"),
            ("<img src=x onerror=alert(1)>", "bad"),
            ("203.0.113.9", "not_read"),
        ]
    );
}

#[tokio::test]
async fn headers_that_are_not_read_are_steps_and_advice() {
    let server = Server::start_admin(&["--trusted", "10.0.0.0/8"]);

    let found = find(
        &server,
        json!({"peer": "10.0.0.1", "headers": "Forwarded: for=203.0.113.9"}),
    )
    .await;
    assert_eq!(found["key"], "ip:10.0.0.1");
    assert_eq!(
        verdicts(&found),
        [("10.0.0.1", "client"), ("for=203.0.113.9", "not_read")]
    );
    let advice = found["advice"][0].as_str().unwrap();
    assert!(advice.contains("--chain-header forwarded"), "{advice}");

    let silent = find(&server, json!({"peer": "10.0.0.1", "headers": "Host: x"})).await;
    let advice = silent["advice"][0].as_str().unwrap();
    assert!(advice.contains("sends no X-Forwarded-For"), "{advice}");

    let real = find(
        &server,
        json!({"peer": "10.0.0.1", "headers": "x-real-ip: 203.0.113.9"}),
    )
    .await;
    assert_eq!(
        (&real["source"], &real["by"]),
        (&json!("x-real-ip"), &json!("X-Real-IP"))
    );
}

#[tokio::test]
async fn a_key_in_the_query_goes_first() {
    let server = Server::start_admin(&["--key-pattern", "user:[0-9]+"]);
    let asked = |query: &str| json!({"peer": "10.0.0.1", "query": query});

    let found = find(&server, asked("?a=b&key=user%3A12")).await;
    assert_eq!(
        (&found["key"], &found["source"]),
        (&json!("key:user:12"), &json!("explicit"))
    );
    assert_eq!(find(&server, asked("key=alice")).await["error"], "bad_key");
    assert_eq!(
        find(&server, asked("key=user:1&key=user:2")).await["error"],
        "ambiguous_key"
    );
    let bad = find(&server, asked("key=a%00")).await;
    assert_eq!(bad["error"], "bad_key");
    assert_eq!(verdicts(&bad), [("10.0.0.1", "peer_untrusted")]);
}

#[tokio::test]
async fn a_request_that_cannot_be_is_an_answer_or_a_400() {
    let server = Server::start_admin(&[]);

    let socket = find(&server, json!({})).await;
    assert_eq!(socket["error"], "no_client");
    assert_eq!(verdicts(&socket), [("a Unix socket", "peer_untrusted")]);
    let peer = find(&server, json!({"peer": "nobody"})).await;
    assert_eq!(
        (&peer["error"], &peer["steps"]),
        (&json!("bad_config"), &json!([]))
    );
    let everyone = find(
        &server,
        json!({"peer": "10.0.0.1", "trusted": ["0.0.0.0/0"]}),
    )
    .await;
    assert_eq!(everyone["error"], "bad_config");
    let lines = "GET / HTTP/1.1\n:\n\u{0}\u{7}\nX-Forwarded-For\n: x\n\n";
    let lines = find(&server, json!({"peer": "10.0.0.1", "headers": lines})).await;
    assert_eq!(lines["key"], "ip:10.0.0.1");
    assert_eq!(
        lines["advice"][0],
        "line 1 is not read: it has no name and colon"
    );

    for body in [
        "",
        "[]",
        "{\"peers\":1}",
        "{\"peer\":1}",
        "{\"trusted\":\"x\"}",
    ] {
        server.post(CLIENT_KEY, body).await.problem(400);
    }
    let many = json!({"trusted": vec!["10.0.0.1"; 101]});
    server.post(CLIENT_KEY, many.to_string()).await.problem(400);
    let long = json!({"headers": "x".repeat(64 << 10)});
    server.post(CLIENT_KEY, long.to_string()).await.problem(413);
    let typed = server.request(http::Method::POST, CLIENT_KEY);
    server.send(typed, "{}").await.problem(415);
}

#[tokio::test]
async fn a_long_chain_has_a_bounded_answer() {
    let server = Server::start_admin(&["--trusted", "10.0.0.0/8"]);
    let headers = format!("X-Forwarded-For: {}", "10.0.0.2,".repeat(7_000));

    let found = find(&server, json!({"peer": "10.0.0.1", "headers": headers})).await;

    assert_eq!(found["steps"].as_array().unwrap().len(), 100);
    assert_eq!(found["moreSteps"], 6_901);
    assert_eq!(found["steps"][32]["verdict"], "client", "after 32 hops");
    assert_eq!(found["steps"][33]["verdict"], "not_read");
}

#[tokio::test]
async fn a_trusted_proxy_is_not_the_client_of_a_chain_that_is_cut() {
    let server = Server::start_admin(&["--trusted", "10.0.0.0/8", "--max-hops", "200"]);
    let headers = format!("X-Forwarded-For: 10.0.0.9{}", ", 10.0.0.2".repeat(149));

    let found = find(&server, json!({"peer": "10.0.0.1", "headers": headers})).await;

    let steps = found["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 100);
    assert!(
        steps.iter().all(|step| step["verdict"] == "trusted"),
        "{found}"
    );
}

/// The command with the same request, and its walk.
fn command(peer: &str, header: &str, trusted: &str) -> Value {
    let output = binary()
        .args(["client-key", "--walk", "--peer", peer])
        .args(["--header", header, "--trusted", trusted])
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn the_command_prints_the_same_walk() {
    let server = Server::start_admin(&[]);
    let header = "X-Forwarded-For: 6.6.6.6, 203.0.113.9, x, 10.0.0.2";
    for (peer, trusted) in [("10.0.0.1", "10.0.0.0/8"), ("203.0.113.1", "10.0.0.0/8")] {
        let asked = json!({"peer": peer, "headers": header, "trusted": [trusted]});

        let found = find(&server, asked).await;
        let printed = command(peer, header, trusted);

        for member in ["key", "source", "steps"] {
            assert_eq!(found[member], printed[member], "{member}");
        }
    }
}

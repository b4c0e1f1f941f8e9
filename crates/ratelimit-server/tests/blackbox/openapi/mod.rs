//! The served document, held to what the server does: requests are made from it, and every answer
//! must be one that it describes.

mod document;
mod requests;

use http::StatusCode;
use ratelimit_tests::random::Random;
use serde_json::Value;

use self::{
    document::{Document, Operation},
    requests::{Maker, query},
};
use crate::{
    console::live::Viewer,
    server::{CHECK, HttpResponse, Server},
};

const WITHOUT: &str = "--admin-without-token";
const SEED: u64 = 1;
const REQUESTS: u64 = 800;
const SLOTS: &str = "slots=concurrency 1000 lease 1min; fixed_window 1000/d";

/// A request, and whether the document allows it.
#[derive(Debug)]
struct Asked {
    path: String,
    body: String,
    is_allowed: bool,
}

impl Asked {
    async fn send(&self, server: &Server, operation: &Operation) -> HttpResponse {
        let request = server.request(operation.method.clone(), &self.path);
        let request = request.header("content-type", "application/json");
        server.send(request, self.body.clone()).await
    }
}

/// Requests for one operation: made from its schemas, and some that no schema can describe.
fn requests(document: &Document, operation: &Operation, receipts: &[String]) -> Vec<Asked> {
    let mut maker = Maker {
        document,
        random: Random::new(SEED),
        receipts,
    };
    let made = (0..REQUESTS).map(|_| {
        if let Some(schema) = &operation.query {
            let (query, read) = query(&maker.object(schema));
            return Asked {
                path: format!("{}?{query}", operation.path),
                body: String::new(),
                is_allowed: document.validator(schema).is_valid(&read),
            };
        }
        let schema = operation.body.as_ref().expect("there is input");
        let body = maker.value(schema);
        Asked {
            path: operation.path.clone(),
            body: body.to_string(),
            is_allowed: document.validator(schema).is_valid(&body),
        }
    });
    let mut all: Vec<Asked> = made.collect();
    if operation.body.is_some() {
        all.extend(
            ["", "{", "{}{}", "\u{feff}{}", r#"{"key":"a","key":"a"}"#].map(|body| Asked {
                path: operation.path.clone(),
                body: body.to_owned(),
                is_allowed: false,
            }),
        );
    } else {
        let asks = |name: &str| operation.names().any(|known| known == name);
        let broken = [
            ("key", "key=%FF"),
            ("key", "key=%"),
            ("key", "key=a&key=a"),
            ("permits", "permits=1&permits=1"),
            ("policy", "policy=%FF"),
            ("most", "most=1&most=1"),
            ("receipt", "receipt=true&receipt=true"),
        ];
        let broken = broken.into_iter().filter(|(name, _)| asks(name));
        all.extend(broken.map(|(_, query)| Asked {
            path: format!("{}?{query}", operation.path),
            body: String::new(),
            is_allowed: false,
        }));
    }
    all
}

/// Receipts of checks, each good for one refund.
async fn receipts(server: &Server) -> Vec<String> {
    let body = r#"{"policy":"slots","key":"held","receipt":true}"#;
    let mut receipts = Vec::new();
    for _ in 0..100 {
        let answer = server.post(CHECK, body).await.json();
        // Where nothing was decided there is none to give.
        let receipt = answer["receipt"].as_str();
        receipts.push(receipt.unwrap_or("00").to_owned());
    }
    receipts
}

#[tokio::test]
async fn every_request_is_answered_as_the_document_says() {
    let server = Server::start_admin(&[
        "--policy",
        "login=5/min; fixed_window 9/h",
        "--policy",
        SLOTS,
    ]);
    let document = Document::of(&server).await;
    let receipts = receipts(&server).await;
    let mut redeemed = 0;

    for operation in document.operations().iter().filter(|it| it.has_input()) {
        let requests = requests(&document, operation, &receipts);
        let allowed = requests.iter().filter(|asked| asked.is_allowed).count();
        let refused = requests.len() - allowed;
        println!(
            "{} {}: {allowed} allowed, {refused} not",
            operation.method, operation.path
        );
        assert!(
            allowed.min(refused) > 50,
            "{operation:?}: {allowed} {refused}"
        );
        for asked in requests {
            let answer = asked.send(&server, operation).await;

            let what = || format!("seed {SEED}, {}\n{asked:?}\n{answer:?}", operation.method);
            assert_eq!(document.mistake(operation, &answer), None, "{}", what());
            assert!(!answer.status.is_server_error(), "{}", what());
            redeemed += usize::from(answer.body == r#"{"changed":true}"#);
            let is_forward_auth = operation.path.ends_with("/forward-auth");
            let is_refused = answer.status == StatusCode::BAD_REQUEST
                || (is_forward_auth && answer.status == StatusCode::NOT_FOUND);
            // A schema does not describe the limits and traces in the texts of a simulation.
            if asked.is_allowed && operation.path == "/console/api/simulate" {
                continue;
            }
            assert_eq!(is_refused, !asked.is_allowed, "{}", what());
        }
    }
    assert!(redeemed > 20, "{redeemed} receipts were good for something");
}

#[tokio::test]
async fn routes_without_input_respond_as_documented() {
    let server = Server::start_admin(&["--console", "write"]);
    let document = Document::of(&server).await;

    let operations = document.operations();
    let operations = operations.iter().filter(|it| !it.has_input());
    for operation in operations.filter(|it| !it.is_stream()) {
        let request = server.request(operation.method.clone(), &operation.path);
        let answer = server.send(request, "").await;

        assert_eq!(answer.status, StatusCode::OK, "{operation:?}");
        assert_eq!(document.mistake(operation, &answer), None, "{answer:?}");
    }
}

#[tokio::test]
async fn the_events_of_the_live_stream_are_as_documented() {
    let server = Server::start_admin(&["--policy", "login=fixed_window 1/d"]);
    let document = Document::of(&server).await;
    let mut viewer = Viewer::open(&server).await;
    for _ in 0..3 {
        let path = format!("{CHECK}?policy=login&key=alice");
        server.get(&path).await;
    }

    for (name, schema) in [
        ("hello", "LiveHello"),
        ("tick", "LiveTick"),
        ("tick", "LiveTick"),
    ] {
        let event = viewer.next_named(name).await;
        let schema = serde_json::json!({"$ref": format!("#/components/schemas/{schema}")});
        let validator = document.validator(&schema);
        let mistakes: Vec<String> = validator
            .iter_errors(&event)
            .map(|why| why.to_string())
            .collect();
        assert!(mistakes.is_empty(), "{mistakes:?}\n{event}");
    }
}

#[tokio::test]
async fn without_a_store_or_a_token_answers_are_in_the_document_too() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = format!("redis://{}", free.local_addr().unwrap());
    drop(free);
    let settings: [&[&str]; 5] = [
        &["--redis", &nowhere, "--on-failure", "closed", WITHOUT],
        &["--redis", &nowhere, "--on-failure", "open", WITHOUT],
        &["--redis", &nowhere, "--on-failure", "local", WITHOUT],
        &["--headers", "ietf", WITHOUT],
        &["--listen", "0.0.0.0:0"],
    ];
    for args in settings {
        let server = Server::start(&[args, &["--policy", SLOTS]].concat());
        let document = Document::of(&server).await;
        let receipts = receipts(&server).await;

        for operation in document.operations().iter().filter(|it| it.has_input()) {
            for asked in requests(&document, operation, &receipts).iter().take(40) {
                let answer = asked.send(&server, operation).await;

                let mistake = document.mistake(operation, &answer);
                assert_eq!(
                    mistake, None,
                    "{args:?} {operation:?}\n{asked:?}\n{answer:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn the_document_names_the_policies_of_this_server() {
    let server = Server::start(&["--policy", "login=5/min"]);

    let document = server.get("/openapi.json").await.json();

    let names = &document["components"]["schemas"]["Policy"]["enum"];
    let names: Vec<&str> = names
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(
        names.contains(&"login") && names.contains(&"token_bucket"),
        "{names:?}"
    );
}

//! Handlers with a limit of their own.

mod of_actix;
mod of_axum;

use std::net::SocketAddr;

use ratelimit_core::{Limiter, MemoryStore, Policy};
use ratelimit_http::registry::Registry;

use crate::{
    client::{Answer, ask, get},
    server::{BOTH, Framework, clock},
};

/// What the application gives its handlers.
#[derive(Clone)]
struct Given {
    limiter: Limiter,
    registry: Registry,
}

impl Given {
    fn new() -> Given {
        let login = Policy::parse("login", "3/min").expect("a policy");
        Given {
            limiter: Limiter::new(MemoryStore::new().clock(clock())),
            registry: Registry::from_policies([login]),
        }
    }

    async fn serve(&self, framework: Framework) -> SocketAddr {
        match framework {
            Framework::Axum => of_axum::serve(self.clone()).await,
            Framework::Actix => of_actix::serve(self.clone()),
        }
    }
}

/// A request line, and header fields.
type Asked<'a> = (&'a str, &'a [&'a str]);

async fn statuses(server: SocketAddr, requests: &[Asked<'_>]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for (request, fields) in requests {
        statuses.push(ask(server, request, fields).await.status);
    }
    statuses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_has_its_own_budget_and_tells_what_is_left() {
    let mut told: Vec<Vec<Answer>> = Vec::new();
    for framework in BOTH {
        let server = Given::new().serve(framework).await;
        let mut answers = Vec::new();
        for _ in 0..3 {
            answers.push(get(server, "/plain").await);
        }
        // Another handler of the same name in another module, case 25 of docs/explain/peers.md.
        answers.push(get(server, "/nested").await);

        let numbers = answers.iter().map(|answer| {
            let remaining = answer.field("x-ratelimit-remaining");
            (answer.status, remaining.map(str::to_owned))
        });
        let expected = [(200, "1"), (200, "0"), (429, "0"), (200, "1")];
        let expected = expected.map(|(status, left)| (status, Some(left.to_owned())));
        assert_eq!(numbers.collect::<Vec<_>>(), expected, "{framework:?}");
        told.push(answers);
    }
    let [mut axum, mut actix] = <[Vec<Answer>; 2]>::try_from(told).expect("both frameworks");
    for (answers, module) in [(&mut axum, "of_axum"), (&mut actix, "of_actix")] {
        let name = format!("adapters::attribute::{module}::plain");
        let told = format!("\"violated-policies\":[\"{name}\"]");
        assert!(answers[2].body.contains(&told), "{}", answers[2].body);
        answers[2].body = answers[2].body.replace(module, "of_both");
        answers[2]
            .fields
            .retain(|field| !field.starts_with("content-length: "));
    }
    assert_eq!(axum, actix);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_body_counts_as_well_and_its_answer_tells_what_is_left() {
    for framework in BOTH {
        let server = Given::new().serve(framework).await;
        let mut told = Vec::new();
        for _ in 0..3 {
            let answer = ask(server, "POST /number", &["content-length: 0"]).await;
            let left = answer.field("x-ratelimit-remaining").map(str::to_owned);
            told.push((answer.status, left.expect("it is told")));
        }

        let refused = match framework {
            Framework::Axum => 415,
            Framework::Actix => 400,
        };
        let expected = [(refused, "1"), (refused, "0"), (429, "0")];
        let expected = expected.map(|(status, left)| (status, left.to_owned()));
        assert_eq!(told, expected, "{framework:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_costs_scopes_and_exemptions_do_what_they_say() {
    let table: &[(&[Asked<'_>], &[u16])] = &[
        (
            &[
                ("GET /header", &["x-api-key: a"]),
                ("GET /header", &["x-api-key: a"]),
                ("GET /header", &["x-api-key: b"]),
                ("GET /header", &[]),
            ],
            &[200, 429, 200, 400],
        ),
        (
            &[
                ("GET /tenant", &["x-tenant: a"]),
                ("GET /tenant", &["x-tenant: a"]),
                ("GET /tenant", &["x-tenant: a", "x-friend: yes"]),
                ("GET /tenant", &["x-tenant: b"]),
            ],
            &[200, 429, 200, 200],
        ),
        (&[("GET /costly", &[]), ("GET /costly", &[])], &[200, 429]),
        (
            &[
                ("GET /measured", &["x-length: four"]),
                ("GET /measured", &["x-length: xx"]),
                ("GET /measured", &["x-length: x"]),
            ],
            &[200, 429, 200],
        ),
        (
            &[("GET /one", &[]), ("GET /other", &[]), ("GET /one", &[])],
            &[200, 200, 429],
        ),
        (
            &[
                ("GET /trial", &[]),
                ("GET /trial", &[]),
                ("GET /trial", &[]),
            ],
            &[200, 200, 200],
        ),
        (&[("GET /lost", &[])], &[500]),
    ];
    for framework in BOTH {
        let server = Given::new().serve(framework).await;
        for (requests, expected) in table {
            let found = statuses(server, requests).await;
            assert_eq!(found, *expected, "{framework:?}: {requests:?}");
        }
        assert_eq!(
            get(server, "/trial").await.field("x-ratelimit-limit"),
            None,
            "a trial is not told"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_layer_and_an_attribute_count_once_each_and_the_stricter_is_reported() {
    for framework in BOTH {
        let server = Given::new().serve(framework).await;

        let mut told = Vec::new();
        for path in ["/both", "/both", "/both", "/layered", "/layered", "/both"] {
            let answer = get(server, path).await;
            let limit = answer.field("x-ratelimit-limit").map(str::to_owned);
            let left = answer.field("x-ratelimit-remaining").map(str::to_owned);
            told.push((answer.status, limit, left));
        }

        // Five for all under the layer, two for the one handler; what the handler denies counts outside.
        let expected = [
            (200, "2", "1"),
            (200, "2", "0"),
            (429, "2", "0"),
            (200, "5", "1"),
            (200, "5", "0"),
            (429, "5", "0"),
        ]
        .map(|(status, limit, left)| (status, Some(limit.to_owned()), Some(left.to_owned())));
        assert_eq!(told, expected, "{framework:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_policy_changes_while_the_server_runs_and_keeps_what_was_spent() {
    for framework in BOTH {
        let given = Given::new();
        let server = given.serve(framework).await;
        let left = async || {
            let answer = get(server, "/login").await;
            let left = answer.field("x-ratelimit-remaining").map(str::to_owned);
            (answer.status, left.expect("it is told"))
        };

        assert_eq!(left().await, (200, "2".to_owned()));
        let wider = Policy::parse("login", "5/min").expect("a policy");
        given.registry.insert(wider);
        assert_eq!(left().await, (200, "3".to_owned()), "{framework:?}");
    }
}

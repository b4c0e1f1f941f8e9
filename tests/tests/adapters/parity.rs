//! One table of cases, answered alike.

use ratelimit_core::FailureMode;
use ratelimit_http::response::HeaderStyle;

use crate::{
    client::{Answer, ask},
    server::{BOTH, Flag, KeyOf, Setup},
};

/// A setup, and requests with the statuses that they get.
struct Case {
    name: &'static str,
    setup: fn() -> Setup,
    requests: &'static [(&'static str, &'static [&'static str], u16)],
}

const PREFLIGHT: &[&str] = &[
    "origin: https://a.example",
    "access-control-request-method: GET",
];

const CASES: &[Case] = &[
    Case {
        name: "a client over its limit",
        setup: || Setup::new("2/min"),
        requests: &[
            ("GET /", &[], 200),
            ("GET /", &["x-forwarded-for: 6.6.6.6"], 200),
            ("GET /", &["x-real-ip: 7.7.7.7"], 429),
            ("HEAD /", &[], 429),
            ("GET /", &["content-type: application/grpc"], 200),
            ("GET /", &["content-type: application/grpc-web+proto"], 200),
            ("GET /missing", &[], 429),
        ],
    },
    Case {
        name: "several limits of one policy, told by the IETF's fields",
        setup: || Setup {
            style: HeaderStyle::Ietf,
            ..Setup::new("3/min; fixed_window 2/h; sliding_window_log 9/d")
        },
        requests: &[
            ("GET /", &[], 200),
            ("GET /left", &[], 200),
            ("GET /", &[], 429),
        ],
    },
    Case {
        name: "seconds to wait, exposed to scripts",
        setup: || Setup {
            style: HeaderStyle::RateLimit,
            options: &[Flag::Exposed],
            ..Setup::new("1/min")
        },
        requests: &[("GET /", &[], 200), ("GET /", &[], 429)],
    },
    Case {
        name: "no fields",
        setup: || Setup {
            style: HeaderStyle::None,
            ..Setup::new("1/min")
        },
        requests: &[("GET /", &[], 200), ("GET /", &[], 429)],
    },
    Case {
        name: "the handler sees what is left, and its own fields give way",
        setup: || Setup {
            style: HeaderStyle::XRateLimitDelta,
            ..Setup::new("5/min")
        },
        requests: &[
            ("GET /left", &[], 200),
            ("GET /own", &[], 200),
            ("GET /missing", &[], 404),
        ],
    },
    Case {
        name: "one limit inside of another",
        setup: || Setup {
            inner: Some("1/min"),
            ..Setup::new("3/min")
        },
        requests: &[
            ("GET /left", &[], 200),
            ("GET /", &[], 429),
            ("GET /", &[], 429),
            ("GET /", &[], 429),
        ],
    },
    Case {
        name: "a looser limit inside of a stricter one",
        setup: || Setup {
            inner: Some("9/min"),
            ..Setup::new("1/min")
        },
        requests: &[("GET /", &[], 200), ("GET /", &[], 429)],
    },
    Case {
        name: "behind a proxy",
        setup: || Setup {
            key: KeyOf::Proxied,
            ..Setup::new("1/min")
        },
        requests: &[
            ("GET /", &["x-forwarded-for: 6.6.6.6, 203.0.113.7"], 200),
            (
                "GET /",
                &[
                    "x-forwarded-for: 1.1.1.1",
                    "x-forwarded-for: 203.0.113.7:80",
                ],
                429,
            ),
            ("GET /", &["x-forwarded-for: 203.0.113.8"], 200),
            ("GET /", &["x-real-ip: 203.0.113.8"], 429),
        ],
    },
    Case {
        name: "a header as the key",
        setup: || Setup {
            key: KeyOf::Header,
            ..Setup::new("1/min")
        },
        requests: &[
            ("GET /", &["x-tenant: a"], 200),
            ("GET /", &["X-Tenant:  a "], 429),
            ("GET /", &["x-tenant: b"], 200),
            ("GET /", &["x-tenant: b", "x-tenant: c"], 400),
            ("GET /", &["x-tenant: "], 400),
            ("GET /", &[], 400),
        ],
    },
    Case {
        name: "an API key, or one budget for all without",
        setup: || Setup {
            key: KeyOf::ApiKeyOrShared,
            ..Setup::new("1/min")
        },
        requests: &[
            ("GET /", &["authorization: Bearer one"], 200),
            ("GET /", &["x-api-key: one"], 429),
            ("GET /", &["authorization: Basic one"], 200),
            ("GET /", &[], 429),
        ],
    },
    Case {
        name: "a cookie, or the client",
        setup: || Setup {
            key: KeyOf::Cookie,
            ..Setup::new("1/min")
        },
        requests: &[
            ("GET /", &["cookie: a=1; sid=x"], 200),
            ("GET /", &["cookie: sid=x"], 429),
            ("GET /", &["cookie: sid=x; sid=y"], 400),
            ("GET /", &["cookie: a=1"], 200),
            ("GET /", &[], 429),
        ],
    },
    Case {
        name: "a query parameter that passes a validator",
        setup: || Setup {
            key: KeyOf::Query,
            ..Setup::new("1/min")
        },
        requests: &[
            ("GET /?key=a%20b", &[], 200),
            ("GET /?x=1&key=a%20b", &[], 429),
            ("GET /?key=forged", &[], 400),
            ("GET /?key=a&key=b", &[], 400),
            ("GET /", &[], 400),
        ],
    },
    Case {
        name: "each route by its pattern",
        setup: || Setup {
            key: KeyOf::ClientAndRoute,
            ..Setup::new("1/min")
        },
        requests: &[
            ("GET /users/1", &[], 200),
            ("GET /users/2", &[], 429),
            ("GET /", &[], 200),
            ("GET /a", &[], 404),
            ("GET /b", &[], 429),
        ],
    },
    Case {
        name: "each method",
        setup: || Setup {
            key: KeyOf::Method,
            ..Setup::new("1/min")
        },
        requests: &[
            ("GET /", &[], 200),
            ("BREW /nothing", &[], 404),
            ("STEEP /nothing", &[], 429),
        ],
    },
    Case {
        name: "a key that the client names, if it is a good one",
        setup: || Setup {
            key: KeyOf::ExplicitHeader,
            ..Setup::new("1/min")
        },
        requests: &[
            ("GET /", &["x-tenant: a"], 200),
            ("GET /", &["x-tenant: a"], 429),
            ("GET /", &["x-tenant: forged"], 400),
            ("GET /", &["x-tenant: a", "x-tenant: b"], 400),
            ("GET /", &[], 200),
        ],
    },
    Case {
        name: "a cost that can never pass",
        setup: || Setup {
            options: &[Flag::Costly],
            ..Setup::new("6/min")
        },
        requests: &[
            ("GET /own", &[], 200),
            ("GET /left", &[], 429),
            ("GET /users/1", &[], 429),
        ],
    },
    Case {
        name: "exempt requests, and preflight",
        setup: || Setup {
            options: &[Flag::Exempt],
            ..Setup::new("1/min")
        },
        requests: &[
            ("GET /health", &[], 200),
            ("OPTIONS /nothing", PREFLIGHT, 404),
            ("GET /", &[], 200),
            ("GET /health", &[], 200),
            ("OPTIONS /nothing", PREFLIGHT, 404),
            ("OPTIONS /nothing", &[], 429),
        ],
    },
    Case {
        name: "counted preflight",
        setup: || Setup {
            options: &[Flag::CountPreflight],
            ..Setup::new("1/min")
        },
        requests: &[
            ("OPTIONS /nothing", PREFLIGHT, 404),
            ("OPTIONS /nothing", PREFLIGHT, 429),
        ],
    },
    Case {
        name: "a limit on trial",
        setup: || Setup {
            options: &[Flag::Shadow],
            ..Setup::new("1/min")
        },
        requests: &[("GET /", &[], 200), ("GET /", &[], 200)],
    },
    Case {
        name: "an answer of the application's own",
        setup: || Setup {
            options: &[Flag::OwnAnswer],
            ..Setup::new("1/min")
        },
        requests: &[("GET /", &[], 200), ("GET /", &[], 503)],
    },
    Case {
        name: "a store that is down: closed",
        setup: || Setup::new("1/min").down(FailureMode::Closed),
        requests: &[("GET /", &[], 503)],
    },
    Case {
        name: "a store that is down: open",
        setup: || Setup::new("1/min").down(FailureMode::Open),
        requests: &[("GET /left", &[], 200), ("GET /", &[], 200)],
    },
    Case {
        name: "a store that is down: local",
        setup: || Setup::new("1/min").down(FailureMode::Local),
        requests: &[("GET /left", &[], 200), ("GET /", &[], 429)],
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_answer_every_case_alike_byte_for_byte() {
    for case in CASES {
        let mut answers: Vec<Vec<Answer>> = Vec::new();
        for framework in BOTH {
            let server = (case.setup)().serve(framework).await;
            let mut told = Vec::new();
            for (request, fields, status) in case.requests {
                let answer = ask(server, request, fields).await;
                assert_eq!(
                    answer.status, *status,
                    "{}: {request} at {framework:?}: {answer:?}",
                    case.name
                );
                told.push(answer);
            }
            answers.push(told);
        }
        for (place, (axum, actix)) in answers[0].iter().zip(&answers[1]).enumerate() {
            assert_eq!(axum, actix, "{}: request {place}", case.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answers_are_those_of_the_documentation() {
    for framework in BOTH {
        let server = Setup::new("2/min").serve(framework).await;
        let first = ask(server, "GET /", &[]).await;
        ask(server, "GET /", &[]).await;
        let denied = ask(server, "GET /", &[]).await;

        assert_eq!(first.field("x-ratelimit-limit"), Some("2"));
        assert_eq!(first.field("x-ratelimit-remaining"), Some("1"));
        assert_eq!(first.field("x-ratelimit-reset"), Some("1031"));
        assert_eq!(denied.field("retry-after"), Some("30"));
        assert_eq!(denied.field("cache-control"), Some("no-store"));
        assert_eq!(
            denied.field("content-type"),
            Some("application/problem+json")
        );
        let body = "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
            \"title\":\"Rate limit exceeded\",\"status\":429,\"detail\":\"Try again in 30 seconds.\",\
            \"violated-policies\":[\"outer\"]}";
        assert_eq!(denied.body, body);
    }
}

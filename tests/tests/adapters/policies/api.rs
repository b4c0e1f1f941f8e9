//! A public API: tiers, keys decided together, who is exempt or blocked, what is marked.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use ratelimit_core::{LoadSignal, Throttle};
use ratelimit_http::policy::BlockStatus;
use ratelimit_http::policy::HttpPolicy;
use ratelimit_tests::chaos::Observations;

use super::{
    connection::{Open, eventually},
    site::{Site, With, policy},
};
use crate::{
    client::{Answer, ask, get},
    server::BOTH,
};

fn left(answer: &Answer) -> Option<&str> {
    answer.field("x-ratelimit-remaining")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn public_api_tiers_by_key_and_by_request() {
    for framework in BOTH {
        let policy = policy("2/min").with_tier("pro", "10/min").expect("limits");
        let by_key = policy
            .clone()
            .with_tier_resolver(|key| key.as_str().ends_with("acme").then(|| "pro".to_owned()));
        let server = Site::new(by_key).with(With::KeyByUser);
        let server = server.serve(framework).await;

        let acme = ask(server, "GET /", &["x-user: acme"]).await;
        let other = ask(server, "GET /", &["x-user: other"]).await;
        assert_eq!(acme.field("x-ratelimit-limit"), Some("10"), "{framework:?}");
        assert_eq!(other.field("x-ratelimit-limit"), Some("2"), "{framework:?}");

        let site = Site::new(policy).with(With::TierByRequest);
        let server = site.serve(framework).await;
        let pro = ask(server, "GET /", &["x-plan: pro"]).await;
        assert_eq!((left(&pro), pro.status), (Some("9"), 200), "{framework:?}");
        let none = ask(server, "GET /", &["x-plan: unheard-of"]).await;
        assert_eq!(none.field("x-ratelimit-limit"), Some("2"), "{framework:?}");
    }
}

/// Per user, per address and per route, all or nothing: case 29 of the bugs of others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_29_what_one_key_denies_charges_no_other() {
    for framework in BOTH {
        let limits = "2/h; 5/h by ip; 6/h by route; 100/h by header:x-app; 100/h by global";
        let site = Site::of(limits).with(With::KeyByUser);
        let server = site.serve(framework).await;
        let call = async |user: &str, path: &str| {
            let user = format!("x-user: {user}");
            let fields = [user.as_str(), "x-forwarded-for: 203.0.113.9"];
            ask(server, &format!("GET {path}"), &fields).await.status
        };

        assert_eq!(call("alice", "/").await, 200, "{framework:?}");
        assert_eq!(call("alice", "/").await, 200);
        for _ in 0..3 {
            assert_eq!(call("alice", "/").await, 429, "{framework:?}: the user's");
        }
        // Three of five are left to the address: the three refusals took none.
        assert_eq!(call("bob", "/").await, 200, "{framework:?}");
        assert_eq!(call("bob", "/").await, 200);
        assert_eq!(call("carol", "/").await, 200);
        assert_eq!(
            call("carol", "/").await,
            429,
            "{framework:?}: the address's"
        );
        // One of six is left to the route, from another address.
        let fields = ["x-user: dave", "x-forwarded-for: 203.0.113.10"];
        assert_eq!(ask(server, "GET /", &fields).await.status, 200);
        assert_eq!(ask(server, "GET /", &fields).await.status, 429);
        assert_eq!(ask(server, "GET /other", &fields).await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soft_limits_mark_what_goes_over() {
    for framework in BOTH {
        let soft = policy("2/min").with_throttle(Throttle::Soft { percent: 50 });
        let site = Site::new(soft.expect("a ceiling")).with(With::Marks);
        let server = site.serve(framework).await;

        let mut marks = Vec::new();
        for _ in 0..4 {
            let answer = get(server, "/").await;
            let mark = answer.field("x-ratelimit-over").map(str::to_owned);
            marks.push((answer.status, mark));
        }

        let over = Some("true".to_owned());
        let expected = [(200, None), (200, None), (200, over), (429, None)];
        assert_eq!(marks, expected, "{framework:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shadow_marks_what_would_be_denied_and_tells_nothing_else() {
    for framework in BOTH {
        let of_policy = Site::new(policy("1/min").shadow());
        let of_layer = Site::of("1/min").with(With::Shadow);
        for site in [of_policy, of_layer] {
            let server = site.with(With::Marks).serve(framework).await;

            let (first, second) = (get(server, "/").await, get(server, "/").await);

            assert_eq!((first.status, second.status), (200, 200), "{framework:?}");
            assert_eq!(first.field("x-ratelimit-shadow"), None);
            assert_eq!(second.field("x-ratelimit-shadow"), Some("denied"));
            assert_eq!((left(&first), left(&second)), (None, None));
        }
        let unmarked = Site::new(policy("1/min").shadow()).serve(framework).await;
        get(unmarked, "/").await;
        assert_eq!(get(unmarked, "/").await.field("x-ratelimit-shadow"), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_requests_are_refused_unspent_and_exempt_ones_pass_untold() {
    for framework in BOTH {
        let rules = policy("2/min")
            .with_exempt_rule("path:/other".parse().expect("a rule"))
            .with_exempt_rule("header:x-probe=yes".parse().expect("a rule"))
            .with_block_rule("203.0.113.0/24".parse().expect("a rule"));
        for (refused, status) in [
            (BlockStatus::Forbidden, 403),
            (BlockStatus::TooManyRequests, 429),
        ] {
            let site = Site::new(rules.clone().with_block_status(refused)).with(With::KeyByUser);
            let server = site.serve(framework).await;
            let fields = ["x-user: mallory", "x-forwarded-for: 203.0.113.66"];

            let blocked = ask(server, "GET /other", &fields).await;
            assert_eq!(blocked.status, status, "{framework:?}");
            assert_eq!(blocked.field("cache-control"), Some("no-store"));
            assert_eq!(blocked.field("retry-after"), None);
            assert_eq!(left(&blocked), None);
            assert!(blocked.body.contains(&format!("\"status\":{status}")));

            for (request, fields) in [
                ("GET /other", &["x-user: mallory"][..]),
                ("GET /other", &["x-user: a", "x-user: b"]),
                ("GET /", &["x-user: mallory", "x-probe: yes"]),
            ] {
                let exempt = ask(server, request, fields).await;
                assert_eq!((exempt.status, left(&exempt)), (200, None), "{framework:?}");
            }
            // Neither has spent anything.
            let limited = ask(server, "GET /", &["x-user: mallory"]).await;
            assert_eq!(left(&limited), Some("1"), "{framework:?}");
        }
        // A policy that only watches blocks nobody.
        let server = Site::new(rules.shadow()).serve(framework).await;
        let watched = ask(server, "GET /", &["x-forwarded-for: 203.0.113.66"]).await;
        assert_eq!(watched.status, 200, "{framework:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_requests_are_counted_by_policy() {
    let observed = Observations::listen();
    for (framework, name) in BOTH.into_iter().zip(["walled-a", "walled-b"]) {
        let walled = HttpPolicy::parse(name, "1/min").expect("limits");
        let walled = walled.with_block_rule("path:/other".parse().expect("a rule"));
        let server = Site::new(walled.clone()).serve(framework).await;
        let watched = Site::new(walled).with(With::Shadow).serve(framework).await;

        for _ in 0..2 {
            assert_eq!(get(server, "/other").await.status, 403, "{framework:?}");
        }
        assert_eq!(get(watched, "/other").await.status, 200, "{framework:?}");

        let blocked = |label: &str| observed.counter("rate_limiter_blocked_total", label);
        assert_eq!(blocked(&format!("policy={name}")), 3, "{framework:?}");
        assert_eq!(blocked(&format!("policy={name} shadow=true")), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elastic_limits_stretch_while_a_signal_says_so() {
    for framework in BOTH {
        let load = Arc::new(AtomicU64::new(0));
        let its = Arc::clone(&load);
        let signal = LoadSignal::of(move || its.load(Ordering::Relaxed), 10);
        let elastic = Throttle::Elastic {
            percent: 100,
            signal,
        };
        let policy = policy("2/min").with_throttle(elastic).expect("a ceiling");
        let server = Site::new(policy).serve(framework).await;

        assert_eq!(get(server, "/").await.status, 200, "{framework:?}");
        assert_eq!(get(server, "/").await.status, 200);
        load.store(10, Ordering::Relaxed);
        assert_eq!(get(server, "/").await.status, 429, "{framework:?}");
        load.store(0, Ordering::Relaxed);
        assert_eq!(get(server, "/").await.status, 200, "{framework:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elastic_limits_count_requests_in_flight_until_their_bodies_end() {
    for framework in BOTH {
        let signal = LoadSignal::in_flight(1);
        let elastic = Throttle::Elastic {
            percent: 100,
            signal: signal.clone(),
        };
        let policy = policy("2/h").with_throttle(elastic).expect("a ceiling");
        let server = Site::new(policy).serve(framework).await;

        let stream = Open::ask(server, "/ticks", &[]).await;
        assert_eq!(
            (stream.status, signal.load()),
            (200, Some(1)),
            "{framework:?}"
        );
        assert_eq!(get(server, "/").await.status, 200);
        assert_eq!(get(server, "/").await.status, 429, "{framework:?}: no room");
        drop(stream);
        assert!(
            eventually(|| async { signal.load() == Some(0) }).await,
            "{framework:?}"
        );
        assert_eq!(
            get(server, "/").await.status,
            200,
            "{framework:?}: room again"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_name_without_an_extractor_is_an_error_before_the_first_request() {
    let site = Site::of("5/min by nobody");
    let layer = site.layer();
    let built = std::thread::spawn(move || drop(tower::Layer::layer(&layer, ()))).join();
    let told = built.expect_err("it is not built");
    let told = told.downcast_ref::<String>().expect("a text");
    assert!(told.contains(".named_key(\"nobody\", ...)"), "{told}");

    let limit = site.limit();
    let server = actix_web::HttpServer::new(move || actix_web::App::new().wrap(limit.clone()));
    let server = server.workers(1).disable_signals();
    let server = server.bind(("127.0.0.1", 0)).expect("a free port");
    assert!(server.run().await.is_err(), "it does not start");
}

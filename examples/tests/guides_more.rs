//! The guides about jobs, outgoing calls, waiting, responses, roll-outs, metrics and Redis: their code and their
//! warnings. `pages.rs` types their commands.

use std::{convert::Infallible, path::Path, time::Duration};

use axum::{Router, response::Redirect, routing::get};
use http::{Request, Response};
use ratelimit_axum::{
    FailureMode, Key, Limiter, Outcome, Policy, RedisConfig, RedisStore, Verdict,
};
use ratelimit_tests::page::{Page, Programs, type_page};
use ratelimit_tower::{OutgoingError, OutgoingLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

#[test]
fn actix_answers_as_the_guide_to_custom_responses_shows() {
    let mut page = Page::open("docs/guides/custom-response.md");
    let of_actix = "--bin actix_custom_response";
    page.text = page.text.replace("--bin custom_response", of_actix);
    assert!(page.text.contains(of_actix));
    let programs = Programs::beside(env!("CARGO_BIN_EXE_actix_custom_response"));

    let steps = type_page(&programs, &page);

    assert_eq!(steps, Ok(5));
}

#[test]
fn the_code_of_a_guide_is_that_of_its_program() {
    // Beside the first block of each page, all that no doctest compiles.
    for (page, programs) in [
        ("jobs.md", &["jobs.rs"][..]),
        (
            "outgoing.md",
            &["outgoing_client.rs", "outgoing_reqwest.rs"],
        ),
        ("wait.md", &["wait_for_turn.rs"]),
        ("custom-response.md", &["custom_response.rs"]),
        ("roll-out.md", &["roll_out.rs"]),
        ("metrics.md", &["axum_metrics.rs"]),
        ("redis.md", &["axum_redis.rs"]),
        ("testing.md", &["tests/fake_clock.rs"]),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let read = |program| std::fs::read_to_string(folder.join(program)).expect("a program");
        let programs: Vec<Vec<String>> = programs.iter().map(|it| lines(&read(it))).collect();
        let blocks = Page::open(&format!("docs/guides/{page}")).blocks();
        let mut code = blocks.iter().filter(|block| block.language == "rust");
        let first = code.next().expect("code");
        for block in code.filter(|block| block.is_ignored).chain([first]) {
            let shown = block
                .text
                .lines()
                .filter(|line| *line != "#" && !line.starts_with("# "));
            let shown = lines(&shown.collect::<Vec<_>>().join("\n"));
            assert!(shown.len() > 3, "{page}");
            let mut places = programs
                .iter()
                .flat_map(|program| program.windows(shown.len()));
            assert!(places.any(|place| place == shown), "{page}: {shown:#?}");
        }
    }
}

/// The lines of a program without indentation.
fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

/// A limiter whose Redis is not there.
fn without_redis() -> Limiter {
    let config = RedisConfig::new("redis://127.0.0.1:1").expect("an address");
    Limiter::new(RedisStore::new(config))
}

fn policy(limits: &str) -> Policy {
    Policy::parse("guide", limits).expect("limits")
}

#[tokio::test]
async fn without_redis_a_closed_policy_gives_a_job_no_decision_and_a_local_one_does() {
    let key = Key::new("ann").expect("a key");
    let limiter = without_redis();

    let closed = policy("2/h").with_failure_mode(FailureMode::Closed);
    let verdict = limiter.check(&closed, &key).await;
    assert!(!verdict.is_allowed() && verdict.decision().is_none());

    let local = policy("2/h");
    for is_allowed in [true, true, false] {
        let verdict = limiter.check(&local, &key).await;
        assert!(matches!(verdict, Verdict::Unchecked { .. }));
        assert_eq!(verdict.is_allowed(), is_allowed);
    }
}

#[tokio::test]
async fn a_closed_policy_in_shadow_mode_denies_nothing_without_redis() {
    let key = Key::new("ann").expect("a key");
    let closed = policy("1/h").with_failure_mode(FailureMode::Closed);
    for policy in [
        closed.shadow(),
        closed.with_enforcement(0).expect("percent"),
    ] {
        for _ in 0..3 {
            assert!(without_redis().check(&policy, &key).await.is_allowed());
        }
    }
}

#[tokio::test]
async fn without_redis_waiting_fails_at_once_if_the_policy_is_closed_and_waits_locally_if_not() {
    let key = Key::new("ann").expect("a key");
    let limiter = without_redis();
    let hour = Duration::from_secs(3600);

    let closed = policy("20/s burst 1").with_failure_mode(FailureMode::Closed);
    let error = limiter.acquire(&closed, &key, hour).await;
    assert_eq!(error.expect_err("closed").retry_after, None);

    let local = policy("20/s burst 1");
    let start = tokio::time::Instant::now();
    for _ in 0..3 {
        let turn = limiter.acquire(&local, &key, hour).await;
        assert!(turn.expect("a turn").is_allowed());
    }
    assert!(start.elapsed() >= Duration::from_millis(90));
}

#[tokio::test]
async fn a_dropped_waiter_leaves_the_queue_and_spends_nothing() {
    let limiter = Limiter::in_memory();
    let (policy, key) = (policy("1/h"), Key::new("ann").expect("a key"));
    let day = Duration::from_secs(86_400);
    assert!(limiter.acquire(&policy, &key, day).await.is_ok());

    let waiting = limiter.acquire(&policy, &key, day);
    assert!(
        tokio::time::timeout(Duration::from_millis(20), waiting)
            .await
            .is_err()
    );

    assert_eq!(limiter.waiting(&policy, &key), 0);
    let left = limiter.peek(&policy, &key).await;
    let wait = left.decision().expect("memory decides").reset_after;
    assert!(wait <= Duration::from_secs(3600), "{wait:?}");
}

#[tokio::test]
async fn a_job_that_fails_gets_its_cost_back() {
    use ratelimit_core::store::Hit;
    let limiter = Limiter::in_memory();
    let (policy, key) = (
        policy("sliding_window_log 10/h"),
        Key::new("ann").expect("a key"),
    );
    let left = async || {
        let peeked = limiter.peek(&policy, &key).await;
        peeked.decision().expect("memory decides").remaining
    };

    let (_, charge) = limiter.reserve(Hit::new(&policy, &key).cost(4)).await;
    assert_eq!(left().await, 6);
    charge
        .expect("it passed")
        .refund()
        .await
        .expect("memory answers");
    assert_eq!(left().await, 10);

    let (_, charge) = limiter.reserve(Hit::new(&policy, &key).cost(4)).await;
    drop(charge);
    assert_eq!(left().await, 6, "dropping refunds nothing");
}

#[tokio::test]
async fn an_outgoing_request_without_redis_fails_if_the_policy_is_closed() {
    let policy = policy("5/s").with_failure_mode(FailureMode::Closed);
    let client = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let client = OutgoingLimitLayer::new(without_redis(), policy).layer(client);

    let request = Request::get("http://peer/").body(()).expect("a request");
    let error = client.oneshot(request).await.err();

    assert_eq!(error, Some(OutgoingError::Unavailable));
}

#[tokio::test]
async fn a_redirect_that_reqwest_follows_costs_one() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let server = Router::new()
        .route("/", get(async || Redirect::to("/end")))
        .route("/end", get(async || "end"));
    tokio::spawn(async move { axum::serve(listener, server).await });
    let client = reqwest::Client::builder().no_proxy().build();
    let client = client.expect("a client");
    let client = service_fn(move |request: Request<reqwest::Body>| {
        let client = client.clone();
        async move {
            let response = client.execute(request.try_into()?).await?;
            Ok::<_, reqwest::Error>(Response::<reqwest::Body>::from(response))
        }
    });
    let client = OutgoingLimitLayer::new(Limiter::in_memory(), policy("2/h")).layer(client);
    let send = async || {
        let request = Request::get(&url).body(reqwest::Body::default());
        client.clone().oneshot(request.expect("a request")).await
    };

    assert_eq!(send().await.expect("sent").status(), 200);
    assert_eq!(send().await.expect("sent").status(), 200);
    let Err(OutgoingError::Denied(decision)) = send().await else {
        panic!("two requests were sent, with two redirects");
    };
    assert!(matches!(decision.outcome, Outcome::Denied { .. }));
}

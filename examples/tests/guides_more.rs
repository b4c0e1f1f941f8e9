//! The guides about jobs, outgoing calls, waiting, responses, roll-outs, metrics and Redis, typed as they stand.

mod example;

use std::{
    convert::Infallible,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use axum::{Router, response::Redirect, routing::get};
use example::{Example, output};
use http::{Request, Response};
use ratelimit_axum::{
    FailureMode, Key, Limiter, Outcome, Policy, RedisConfig, RedisStore, Verdict,
};
use ratelimit_tests::redis::TestRedis;
use ratelimit_tower::{OutgoingError, OutgoingLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

const CARGO_RUN: &str = "cargo run -p ratelimit-examples --bin ";

/// A guide, and what is changed in its lines before they are typed.
struct Guide {
    page: String,
    replaced: Vec<(&'static str, String)>,
    servers: Vec<Example>,
}

impl Guide {
    fn open(name: &str) -> Guide {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides");
        Guide {
            page: std::fs::read_to_string(folder.join(name)).expect("a page"),
            replaced: Vec::new(),
            servers: Vec::new(),
        }
    }

    /// Types the shell blocks, and compares each with the text behind it. Returns how many were compared.
    fn run(mut self) -> usize {
        let page = std::mem::take(&mut self.page);
        let blocks = blocks(&page);
        let mut compared = 0;
        for (place, (language, lines)) in blocks.iter().enumerate() {
            let answer = blocks.get(place + 1).filter(|(next, _)| *next == "text");
            if !language.starts_with("sh") {
                continue;
            }
            match (lines.strip_prefix(CARGO_RUN), answer) {
                (Some(program), None) => self.start(program),
                (Some(program), Some((_, expected))) => {
                    let told = output(&binary(program.trim()), &[]);
                    assert!(is_like(&told, expected), "{told}");
                    compared += 1;
                }
                (None, Some((_, expected))) => {
                    let told = self.shell(lines);
                    assert!(is_like(&told, expected), "{lines}{told}");
                    compared += 1;
                }
                (None, None) => {}
            }
        }
        compared
    }

    /// Starts a program on a free port, which takes the place of the one on the page.
    fn start(&mut self, command: &str) {
        let mut words = command.split_whitespace();
        let program = binary(words.next().expect("a name"));
        let arguments: Vec<&str> = words.skip_while(|word| *word == "--").collect();
        let (port, others) = match arguments.split_first() {
            Some((&"127.0.0.1:3001", others)) => ("localhost:3001", others),
            Some((_, others)) => ("localhost:3000", others),
            None => ("localhost:3000", &[][..]),
        };
        let others: Vec<String> = others.iter().map(|other| self.replace(other)).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let server = Example::start(&program, &others);
        self.replaced.push((port, server.address().to_owned()));
        self.servers.push(server);
    }

    fn shell(&self, lines: &str) -> String {
        let shell = Command::new("sh")
            .args(["-c", &self.replace(lines)])
            .output();
        String::from_utf8(shell.expect("a shell").stdout)
            .expect("text")
            .replace('\r', "")
    }

    fn replace(&self, text: &str) -> String {
        let replaced = self.replaced.iter();
        replaced.fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }
}

/// The fenced blocks of a page: what stands behind the backticks, and the lines.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let parts = page.split("```").skip(1).step_by(2);
    parts.filter_map(|block| block.split_once('\n')).collect()
}

/// Whether a text is the expected one, where `...` stands for anything. Spaces at the end of a line do not count.
fn is_like(text: &str, expected: &str) -> bool {
    let [text, expected] = [text, expected].map(|text| {
        let lines = text.lines().map(str::trim_end);
        lines.collect::<Vec<_>>().join("\n")
    });
    let mut parts = expected.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    rest.is_empty() || last.is_some_and(|last| !last.is_empty() && rest.ends_with(last))
}

fn binary(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_BIN_EXE_jobs")).with_file_name(name);
    folder.into_os_string().into_string().expect("a path")
}

#[test]
fn jobs() {
    assert_eq!(Guide::open("jobs.md").run(), 1);
}

#[test]
fn outgoing() {
    assert_eq!(Guide::open("outgoing.md").run(), 2);
}

#[test]
fn wait() {
    assert_eq!(Guide::open("wait.md").run(), 2);
}

#[test]
fn custom_response() {
    assert_eq!(Guide::open("custom-response.md").run(), 4);
}

#[test]
fn actix_answers_as_the_guide_to_custom_responses_shows() {
    let mut guide = Guide::open("custom-response.md");
    guide.page = guide
        .page
        .replace("--bin custom_response", "--bin actix_custom_response");
    assert_eq!(guide.run(), 4);
}

#[test]
fn roll_out() {
    assert_eq!(Guide::open("roll-out.md").run(), 3);
}

#[test]
fn metrics() {
    assert_eq!(Guide::open("metrics.md").run(), 2);
}

#[tokio::test]
async fn redis() {
    let redis = TestRedis::start().await;
    let mut guide = Guide::open("redis.md");
    guide
        .replaced
        .push(("redis://127.0.0.1:6379", redis.url().to_owned()));
    // Typed elsewhere than in the runtime of Redis, which goes on meanwhile.
    let compared = tokio::task::spawn_blocking(move || guide.run()).await;
    assert_eq!(compared.expect("no panic"), 2);
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
        let guide = Guide::open(page);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let read = |program| std::fs::read_to_string(folder.join(program)).expect("a program");
        let programs: Vec<Vec<String>> = programs.iter().map(|it| lines(&read(it))).collect();
        let code = blocks(&guide.page);
        let mut code = code
            .iter()
            .filter(|(language, _)| language.starts_with("rust"));
        let first = code.next().expect("code");
        for (_, text) in code
            .filter(|(language, _)| language.contains("ignore"))
            .chain([first])
        {
            let shown = text
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

#[test]
fn three_dots_stand_for_anything() {
    assert!(is_like("a 1 b\nc\n", "a ... b\nc\n"));
    assert!(is_like("a\nb\nc\n", "a\n...c\n"));
    assert!(!is_like("a 1 b\nc\n", "a ... d\nc\n"));
    assert!(!is_like("a b\nc\n", "a b\n"));
    assert!(!is_like("a 1 b\nc\n", "a ... b\n"));
    assert!(is_like("a 1 b 2 b\n", "a ... b\n"));
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
    let client = reqwest::Client::new();
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

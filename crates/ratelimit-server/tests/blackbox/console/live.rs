//! The stream of live numbers.

use std::time::{Duration, Instant};

use axum::body::Bytes;
use futures_util::future::join_all;
use http::{Method, Response, request::Builder};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use ratelimit_tests::redis::RedisProcess;
use serde_json::Value;
use tempfile::TempDir;

use super::{Console, TOKEN, cookie_ending_in};
use crate::server::{CHECK, PATIENCE, Server, until};

const LIVE: &str = "/console/api/live";

/// A viewer with a connection of its own.
pub(crate) struct Viewer {
    response: Response<Incoming>,
    /// The bytes of events that are not complete.
    pending: String,
}

/// One event of a stream.
#[derive(Debug)]
struct Event {
    name: String,
    id: Option<String>,
    retry: Option<String>,
    data: Value,
}

impl Viewer {
    pub(crate) async fn open(server: &Server) -> Viewer {
        Viewer::open_over(server, false).await
    }

    async fn open_over(server: &Server, is_http2: bool) -> Viewer {
        Viewer::send(server.request(Method::GET, LIVE), is_http2).await
    }

    async fn send(request: Builder, is_http2: bool) -> Viewer {
        let mut builder = Client::builder(TokioExecutor::new());
        let client = builder.http2_only(is_http2).build_http();
        let request = request.body(Full::<Bytes>::default()).unwrap();
        let response = tokio::time::timeout(PATIENCE, client.request(request)).await;
        Viewer {
            response: response.expect("no answer ever came").unwrap(),
            pending: String::new(),
        }
    }

    fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.pending.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.pending = rest;
                if let Some(event) = parse(&event) {
                    return Some(event);
                }
                continue;
            }
            let frame = tokio::time::timeout(PATIENCE, self.response.frame()).await;
            let frame = frame.expect("no event ever came")?.unwrap();
            let bytes = frame.into_data().unwrap();
            self.pending += str::from_utf8(&bytes).unwrap();
        }
    }

    /// The next tick of which `is_found` holds.
    async fn tick_with(&mut self, is_found: impl Fn(&Value) -> bool) -> Value {
        let reading = async {
            loop {
                let tick = self.next_named("tick").await;
                if is_found(&tick) {
                    return tick;
                }
            }
        };
        let found = tokio::time::timeout(PATIENCE, reading).await;
        found.expect("no such tick ever came")
    }

    /// Reads ticks until the stream ends, which says no bye.
    async fn read_ticks_to_end(&mut self) {
        let reading = async {
            while let Some(event) = self.next().await {
                assert_eq!(event.name, "tick");
            }
        };
        let ended = tokio::time::timeout(PATIENCE, reading).await;
        ended.expect("the stream never ended");
    }

    pub(crate) async fn next_named(&mut self, name: &str) -> Value {
        let event = self.next().await.expect("the stream goes on");
        assert_eq!(event.name, name, "{event:?}");
        event.data
    }
}

/// An event of its lines; `None` for a comment.
fn parse(text: &str) -> Option<Event> {
    let field = |name: &str| {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.map(str::to_owned)
    };
    Some(Event {
        name: field("event")?,
        id: field("id"),
        retry: field("retry"),
        data: serde_json::from_str(&field("data")?).unwrap(),
    })
}

/// The number of checks behind a rate of a tick.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_arithmetic,
    reason = "a rate times its span is a small count"
)]
fn count(tick: &Value, of: &Value) -> u64 {
    let seconds = tick["elapsedMicros"].as_f64().unwrap() / 1e6;
    (of.as_f64().unwrap() * seconds).round() as u64
}

/// All ticks until `checks` checks are in them, and their counts.
#[expect(clippy::float_arithmetic, reason = "sums of rates are exact")]
async fn counted(viewer: &mut Viewer, checks: u64) -> (Vec<Value>, Vec<u64>) {
    let names = [
        "checks",
        "allowed",
        "over",
        "denied",
        "wouldDeny",
        "unchecked",
        "denyCached",
        "prefetched",
    ];
    let mut ticks = Vec::new();
    let mut sums = vec![0; names.len()];
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "{sums:?}");
        let tick = viewer.next_named("tick").await;
        let part = |name: &str| tick[name].as_f64().unwrap();
        let sum = part("allowed") + part("over") + part("denied");
        assert_eq!(part("checks").to_bits(), sum.to_bits(), "{tick}");
        for (sum, name) in sums.iter_mut().zip(names) {
            *sum += count(&tick, &tick[name]);
        }
        ticks.push(tick);
        if sums[0] >= checks {
            return (ticks, sums);
        }
    }
}

async fn check(server: &Server, policy: &str, times: usize) {
    let path = format!("{CHECK}?policy={policy}&key=alice");
    for _ in 0..times {
        server.get(&path).await;
    }
}

fn with_policies(dir: &TempDir) -> Server {
    let path = dir.path().join("server.toml");
    let text = "application = 'shop'\n\
                admin-without-token = true\n\
                trusted = ['10.0.0.0/8', '2001:db8::1']\n\
                [policy.hard]\nlimits = 'fixed_window 5/d'\n\
                [policy.soft]\nlimits = 'fixed_window 10/d'\nthrottle = 'soft 50%'\n\
                [policy.watched]\nlimits = 'fixed_window 4/d'\nshadow = true\n\
                [policy.idle]\nlimits = 'fixed_window 4/d'\nshadow = true\n";
    std::fs::write(&path, text).unwrap();
    Server::start(&["--config", path.to_str().unwrap()])
}

#[tokio::test]
async fn checks_of_a_scripted_load_are_in_the_ticks_and_in_the_history() {
    let dir = TempDir::new().unwrap();
    let server = with_policies(&dir);
    let mut viewer = Viewer::open(&server).await;
    assert_eq!(viewer.status(), 200);
    let headers = viewer.response.headers();
    assert_eq!(headers["content-type"], "text/event-stream");
    assert_eq!(headers["x-accel-buffering"], "no");
    assert_eq!(headers["cache-control"], "no-store");
    let hello = viewer.next().await.unwrap();
    assert_eq!(
        (&*hello.name, hello.retry.as_deref()),
        ("hello", Some("2000"))
    );
    let hello = hello.data;
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(hello["server"], format!("ratelimit-server {version}"));
    assert_eq!(hello["application"], "shop");
    assert_eq!(hello["listen"], server.addr.to_string());
    assert_eq!(
        hello["trusted"],
        serde_json::json!(["10.0.0.0/8", "2001:db8::1"])
    );
    assert_eq!(hello["timeBudgetMicros"], Value::Null);
    let first = viewer.next().await.unwrap();
    assert_eq!(first.id, Some(first.data["t"].to_string()));
    let started_at = hello["startedAt"].as_u64().unwrap();
    assert!(first.data["t"].as_u64().unwrap().abs_diff(started_at) < 60);

    check(&server, "hard", 8).await; // 5 fit, 3 are denied
    check(&server, "soft", 17).await; // 10 fit, 5 are over, 2 are denied
    check(&server, "watched", 9).await; // 4 fit, 5 would be denied
    server
        .get("/api/v1/rate-limit/remaining?policy=hard&key=alice")
        .await;

    let (ticks, sums) = counted(&mut viewer, 34).await;
    let tick = ticks.last().unwrap();
    assert_eq!(sums, [34, 24, 5, 5, 5, 0, 0, 0], "{tick}");
    assert_eq!(tick["store"]["kind"], "memory");
    assert_eq!(tick["store"]["up"], true);
    assert_eq!(tick["store"]["downMicros"], 0);
    assert_eq!(tick["store"]["server"], Value::Null);
    assert_eq!(tick["reload"], Value::Null);
    let quiet = viewer.next_named("tick").await;
    assert_eq!(quiet["checks"], 0.0, "{quiet}");
    let order = |list: &str| -> Vec<String> {
        let list = quiet[list].as_array().unwrap().iter();
        let name = |entry: &Value| entry["policy"].as_str().unwrap().to_owned();
        list.map(name).collect()
    };
    assert_eq!(order("top"), ["soft", "watched", "hard"]);
    assert_eq!(quiet["top"][2]["limits"], "fixed_window 5/d");
    assert_eq!(order("watched"), ["idle", "watched"]);
    assert_eq!(quiet["watched"][0]["enforced"], 0);

    let mut later = Viewer::open(&server).await;
    let history = later.next_named("hello").await["history"].clone();
    let sum = |name: &str| -> f64 {
        let points = history[name].as_array().unwrap().iter();
        points.filter_map(Value::as_f64).sum()
    };
    let times: Vec<u64> = history["t"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_u64)
        .collect();
    assert!(
        times.is_sorted_by(|one, next| one + 1 == *next),
        "{times:?}"
    );
    for tick in &ticks {
        let second = times.iter().position(|time| tick["t"] == *time).unwrap();
        for name in ["checks", "allowed", "over", "denied"] {
            assert_eq!(history[name][second], tick[name], "{history} {tick}");
        }
    }
    assert!(
        (sum("allowed") + sum("over") + sum("denied") - sum("checks")).abs() < 1e-9,
        "{history}"
    );
    let next = later.next_named("tick").await;
    assert_eq!(next["t"].as_u64(), times.last().map(|last| last + 1));
}

#[tokio::test]
async fn the_33rd_viewer_is_refused_until_another_leaves() {
    let server = Server::start_admin(&["--application", "shop"]);
    let open = |place: usize| Viewer::open_over(&server, place % 2 == 1);
    let mut viewers = join_all((0..32).map(open)).await;
    for viewer in &mut viewers {
        viewer.next_named("hello").await;
    }

    assert_eq!(Viewer::open(&server).await.status(), 503);
    let detail = server.get(LIVE).await.problem(503);
    assert!(detail.contains("32 pages watch already"), "{detail}");
    for viewer in &mut viewers {
        viewer.next_named("tick").await;
    }
    let scraped = server.get("/actuator/prometheus").await.body;
    let gauge = "rate_limiter_console_viewers{application=\"shop\"} 32\n";
    assert!(scraped.contains(gauge), "{scraped}");

    // One over HTTP/2, and one over HTTP/1.1.
    for is_http2 in [true, false] {
        drop(viewers.pop());
        let viewer = until(|| async {
            let viewer = Viewer::open_over(&server, is_http2).await;
            (viewer.status() == 200).then_some(viewer)
        });
        viewers.insert(0, viewer.await);
    }
    assert_eq!(Viewer::open(&server).await.status(), 503);
}

#[tokio::test]
async fn a_stream_ends_with_its_session_and_with_the_token() {
    let console = Console::start(&[]);
    let refused = console.server.get(LIVE).await;
    refused.problem(401);
    let page = |cookie: &str| Viewer::send(console.page(Method::GET, LIVE, cookie), false);
    let mut short = page(&cookie_ending_in(3, TOKEN)).await;
    let mut long = page(&console.sign_in().await).await;
    let bearer = console.server.request(Method::GET, LIVE);
    let bearer = bearer.header("authorization", format!("Bearer {TOKEN}"));
    let mut program = Viewer::send(bearer, false).await;
    for viewer in [&mut short, &mut long, &mut program] {
        viewer.next_named("hello").await;
    }

    short.read_ticks_to_end().await;
    for viewer in [&mut long, &mut program] {
        viewer.next_named("tick").await;
    }
    console.replace_token("another-token-of-16-bytes");
    for viewer in [&mut long, &mut program] {
        viewer.read_ticks_to_end().await;
    }
}

#[tokio::test]
async fn a_server_with_five_streams_says_bye_and_ends_at_once() {
    for is_http2 in [false, true] {
        let mut server = Server::start_admin(&["--shutdown-timeout", "60s"]);
        let viewers = (0..5).map(|_| Viewer::open_over(&server, is_http2));
        let mut viewers = join_all(viewers).await;
        for viewer in &mut viewers {
            viewer.next_named("hello").await;
            viewer.next_named("tick").await;
        }

        let started = Instant::now();
        server.signal("TERM");
        for viewer in &mut viewers {
            let bye = loop {
                let event = viewer.next().await.expect("the server says bye");
                if event.name != "tick" {
                    break event;
                }
            };
            assert_eq!((&*bye.name, &bye.data), ("bye", &serde_json::json!({})));
            assert!(viewer.next().await.is_none());
        }
        assert!(server.ended().await.success());

        let elapsed = started.elapsed();
        println!("HTTP/2 {is_http2}: ended after {elapsed:?}");
        // Idle connections are closed after one second.
        assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
    }
}

#[tokio::test]
async fn a_stream_outlives_the_timeouts_of_requests() {
    let timeouts = ["--request-timeout", "1s", "--header-timeout", "1s"];
    for is_http2 in [false, true] {
        let server = Server::start_admin(&timeouts);
        let mut viewer = Viewer::open_over(&server, is_http2).await;
        viewer.next_named("hello").await;
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(2_500) {
            viewer.next_named("tick").await;
        }
    }
}

#[tokio::test]
async fn while_the_server_drains_there_are_no_new_streams() {
    let server = Server::start_admin(&["--drain-delay", "60s"]);
    let mut viewer = Viewer::open(&server).await;
    viewer.next_named("hello").await;
    server.signal("TERM");
    let ended = tokio::time::timeout(PATIENCE, async { while viewer.next().await.is_some() {} });
    ended.await.expect("the stream never ended");

    assert_eq!(Viewer::open(&server).await.status(), 503);
    let refused = server.get(LIVE).await;
    assert_eq!(refused.problem(503), "the server shuts down");
}

#[tokio::test]
async fn a_stopped_redis_and_the_fallback_that_decides_are_in_the_ticks() {
    let mut redis = RedisProcess::start(&[]);
    let url = redis.url();
    let address = url.strip_prefix("redis://").unwrap();
    let server = Server::start_connected(&[
        "--redis",
        &url,
        "--policy",
        "api=fixed_window 1000000/d",
        "--time-budget",
        "5s",
    ]);
    let mut viewer = Viewer::open(&server).await;
    let hello = viewer.next_named("hello").await;
    assert_eq!(hello["timeBudgetMicros"], 5_000_000);

    check(&server, "api", 5).await;
    let (ticks, sums) = counted(&mut viewer, 5).await;
    let tick = ticks.last().unwrap();
    assert_eq!(sums, [5, 5, 0, 0, 0, 0, 0, 0], "{tick}");
    let store = &tick["store"];
    assert_eq!(
        (&store["kind"], &store["up"]),
        (&"redis".into(), &true.into())
    );
    assert_eq!(store["server"], address.trim_end_matches('/'), "{store}");
    let version: String = redis.command(&["INFO", "server"]).unwrap();
    let version = version
        .lines()
        .find_map(|line| line.strip_prefix("redis_version:"));
    assert_eq!(store["version"].as_str(), version, "{store}");
    assert!(tick["p50Micros"].as_u64().unwrap() <= tick["p99Micros"].as_u64().unwrap());
    assert!(tick["roundTripMicros"].as_u64().unwrap() > 0, "{tick}");

    redis.kill();
    let is_down = |store: &Value| store["up"] == false && store["downMicros"].as_u64() > Some(0);
    let down = viewer.tick_with(|tick| is_down(&tick["store"])).await;
    assert_eq!(down["p50Micros"], Value::Null, "{down}");
    check(&server, "api", 7).await;
    let (ticks, sums) = counted(&mut viewer, 7).await;
    let tick = ticks.last().unwrap();
    assert_eq!(sums, [7, 7, 0, 0, 0, 7, 0, 0], "{tick}");
    let top = &tick["top"][0];
    assert_eq!(
        (&top["policy"], &top["store"]),
        (&"api".into(), &0.0.into())
    );
    assert!(top["fallback"].as_f64() > Some(0.0), "{top}");
    assert_eq!(top["fallbackModes"]["local"], top["fallback"], "{top}");

    redis.restart();
    let up = viewer.tick_with(|tick| tick["store"]["up"] == true).await;
    assert_eq!(up["store"]["downMicros"], 0);
    assert!(up["store"]["reconnects"].as_u64() > Some(0), "{up}");
    let healed = until(|| async {
        let answer = server.get(&format!("{CHECK}?policy=api&key=bob")).await;
        (!answer.body.contains("\"store\"")).then_some(())
    });
    healed.await;
    let by_store = |tick: &Value| count(tick, &tick["top"][0]["store"]) > 0;
    viewer.tick_with(by_store).await;
}

#[tokio::test]
async fn a_reload_is_in_the_ticks() {
    let dir = TempDir::new().unwrap();
    let server = with_policies(&dir);
    let mut viewer = Viewer::open(&server).await;
    viewer.next_named("hello").await;
    let path = dir.path().join("server.toml");
    let text = std::fs::read_to_string(&path).unwrap();

    for (text, result) in [
        (format!("{text}[policy.more]\nlimits = '1/s'\n"), "ok"),
        (
            format!("{text}[policy.more]\nlimits = 'many'\n"),
            "rejected",
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        let is_told = |tick: &Value| tick["reload"]["result"] == result;
        let tick = viewer.tick_with(is_told).await;
        assert!(tick["reload"]["at"].as_u64() <= tick["t"].as_u64());
    }
}

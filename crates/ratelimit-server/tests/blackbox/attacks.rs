//! Attacks on the memory and the connections of a running server.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{StreamExt as _, future::join_all, stream};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::BoxBody};
use hyper::{body::Frame, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    memory_cgroup::MemoryCgroup,
    raw_http2,
    server::{CHECK, PATIENCE, Server, until},
};

const LIVENESS: &str = "/actuator/health/liveness";
const METRICS: &str = "/actuator/prometheus";

const MIB: u64 = 1 << 20;

/// The limit of the manifest `examples/deploy/kubernetes.yaml`.
const LIMIT: u64 = 256 * MIB;

/// What a server may keep of its largest memory: pages that the allocator has not returned yet, and stacks of threads. A debug
/// build kept up to 73 MiB after all attacks.
const KEPT: u64 = 96 * MIB;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A line of `/proc/PID/status` with a size, in bytes.
fn memory_line(server: &Server, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line
        .expect("a line of that name")
        .trim_matches([':', '\t', ' ', 'k', 'B']);
    kib.parse::<u64>().unwrap() * 1_024
}

/// The memory of the server besides the pages of its program, which are in memory once they were used, and can be dropped.
fn resident(server: &Server) -> u64 {
    memory_line(server, "RssAnon")
}

/// Waits until the memory is near that of the start. A kubelet goes on asking for liveness; without any work the allocator
/// would give nothing back.
async fn memory_is_given_back(server: &Server, at_start: u64, attack: &str) {
    let given_back = until(async || {
        server.get(LIVENESS).await;
        (resident(server) < at_start + KEPT).then_some(())
    });
    let timed = tokio::time::timeout(PATIENCE / 2, given_back).await;
    let (now, peak) = (resident(server) / MIB, memory_line(server, "VmHWM") / MIB);
    println!(
        "{attack}: {now} MiB now, {} MiB at the start, {peak} MiB at most",
        at_start / MIB
    );
    assert!(timed.is_ok(), "{attack}: {now} MiB are kept");
    assert!(peak < LIMIT / MIB, "{attack}: {peak} MiB at most");
}

/// The status of a GET on a connection of its own.
fn status_at(addr: SocketAddr, path: &str) -> u16 {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer[9..12].parse().unwrap()
}

/// Asks for liveness again and again until it is dropped.
struct LivenessProbe {
    is_ended: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<Vec<Duration>>>,
}

impl LivenessProbe {
    fn start(addr: SocketAddr) -> LivenessProbe {
        let is_ended = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_ended);
        let probe = move || {
            let mut times = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                let asked = Instant::now();
                assert_eq!(status_at(addr, LIVENESS), 200);
                times.push(asked.elapsed());
                thread::sleep(Duration::from_millis(50));
            }
            times
        };
        LivenessProbe {
            is_ended,
            thread: Some(thread::spawn(probe)),
        }
    }

    /// Asserts that it was answered within a second, as a kubelet does. Two answers may be late on a busy machine.
    fn end(mut self, attack: &str) {
        self.is_ended.store(true, Ordering::Relaxed);
        let times = self
            .thread
            .take()
            .unwrap()
            .join()
            .expect("each was answered");
        let late = times.iter().filter(|time| **time > Duration::from_secs(1));
        let (late, slowest) = (late.count(), times.iter().max());
        println!("{attack}: {} probes, slowest {slowest:?}", times.len());
        assert!(
            late <= 2,
            "{attack}: {late} of {} probes were late",
            times.len()
        );
    }
}

/// A client of HTTP/2 whose bodies are anything.
async fn http2_client(addr: SocketAddr) -> http2::SendRequest<BoxBody<Bytes, std::io::Error>> {
    let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    // As Envoy does. Else the end of each window waits for an acknowledgement, and 16 MiB take 10 seconds.
    stream.set_nodelay(true).unwrap();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (client, connection) = handshake.unwrap();
    tokio::spawn(connection);
    client
}

fn full(body: impl Into<Bytes>) -> BoxBody<Bytes, std::io::Error> {
    Full::new(body.into())
        .map_err(|never| match never {})
        .boxed()
}

fn post(addr: SocketAddr, path: &str, content_type: &str) -> http::request::Builder {
    Request::builder()
        .method(Method::POST)
        .uri(format!("http://{addr}{path}"))
        .header("content-type", content_type)
}

/// The server of most attacks, with the cgroup that it runs in. It ends before the cgroup is removed.
struct Victim {
    server: Server,
    envoy: SocketAddr,
    _dir: TempDir,
    cgroup: Option<MemoryCgroup>,
}

/// The name of a policy of the server.
fn policy(number: u32) -> String {
    format!("policy-{number:060}")
}

impl Victim {
    fn start() -> Victim {
        let dir = TempDir::new().unwrap();
        let rules_dir = dir.path().join("rules");
        fs::create_dir(&rules_dir).unwrap();
        let rules = "domain: edge\ndescriptors: [{ key: user }]\n";
        fs::write(rules_dir.join("rules.yaml"), rules).unwrap();
        let policies = (0..1_500).map(|number| format!("  {}: 1000000/d\n", policy(number)));
        let policies: Vec<String> = policies.collect();
        let policies = policies.concat();
        let config = dir.path().join("server.yaml");
        fs::write(&config, format!("policy:\n{policies}")).unwrap();
        let config = config.to_str().unwrap();
        let rules = rules_dir.to_str().unwrap();
        let args = ["--envoy-listen", "127.0.0.1:0", "--envoy-config", rules];
        // Checks without a policy are the shortest ones.
        let args = [&args[..], &["--require-policy=false"]].concat();
        let cgroup = MemoryCgroup::create(LIMIT);
        let server = Server::start_with(&[&args[..], &["--config", config]].concat(), |command| {
            if let Some(cgroup) = &cgroup {
                cgroup.enclose(command);
            }
        });
        let (_, envoy) = server.banner.split_once("  envoy      ").unwrap();
        let envoy = envoy.split(' ').next().unwrap().parse().unwrap();
        Victim {
            server,
            envoy,
            _dir: dir,
            cgroup,
        }
    }
}

/// A1: many responses for which the peer opens no window. Returns the connections.
async fn ask_without_window(
    addr: SocketAddr,
    connections: u32,
    calls: u32,
    requests: impl Fn(u32) -> Vec<u8>,
) -> Vec<tokio::net::TcpStream> {
    let asked = (0..connections).map(async |_| {
        let mut stream = raw_http2::connect(addr, 0).await;
        for call in 0..calls {
            // The server may have closed it.
            if stream.write_all(&requests(2 * call + 1)).await.is_err() {
                break;
            }
        }
        stream
    });
    join_all(asked).await
}

/// Waits until the server has closed connections.
async fn are_closed(connections: Vec<tokio::net::TcpStream>) {
    let closed = connections.into_iter().map(async |mut stream| {
        let mut chunk = [0; 4_096];
        while let Ok(1..) = stream.read(&mut chunk).await {}
    });
    let closed = tokio::time::timeout(PATIENCE, join_all(closed)).await;
    closed.expect("the server closes them");
}

/// A batch of checks that no JSON parser should hold.
fn endless_batch(bytes: usize) -> String {
    format!("{{\"checks\":[{}{{}}]}}", "{},".repeat(bytes / 3))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(
    clippy::too_many_lines,
    reason = "the attacks follow each other on one server"
)]
async fn a_server_of_256_mib_survives_attacks_on_its_memory_and_gives_it_back() {
    let victim = Victim::start();
    let (server, main) = (&victim.server, victim.server.addr);
    println!("in a cgroup: {}", victim.cgroup.is_some());
    // Each policy has series once it was used, and the first rendering registers those of the server.
    for first in [0, 750] {
        let checks: Vec<String> = (first..first + 750)
            .map(|number| format!("{{\"key\":\"k\",\"policy\":\"{}\"}}", policy(number)))
            .collect();
        let batch = format!("{{\"checks\":[{}]}}", checks.join(","));
        assert_eq!(server.post(CHECK, batch).await.status, StatusCode::OK);
    }
    assert_eq!(server.get(METRICS).await.status, 200);
    // The allocator gives back what the rendering took.
    for _ in 0..30 {
        server.get(LIVENESS).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let at_start = resident(server);

    let name = "A1, static answers";
    let probe = LivenessProbe::start(main);
    let unread = ask_without_window(main, 16, 200, |id| raw_http2::get(id, "/openapi.json")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(resident(server) < at_start + KEPT, "{}", resident(server));
    probe.end(name);

    let name = "A1, answers to batches";
    let probe = LivenessProbe::start(main);
    let checks: Vec<String> = (0..1_000)
        .map(|key| format!("{{\"key\":\"{key}\"}}"))
        .collect();
    // It fits a frame.
    let batch = format!("{{\"checks\":[{}]}}", checks.join(","));
    assert!(batch.len() < 16_384);
    // Three bodies fit the window of a connection, which this client does not look at.
    let batches = ask_without_window(main, 100, 3, |id| raw_http2::post(id, CHECK, &batch)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    println!("{name}: {} MiB while they wait", resident(server) / MIB);
    assert!(resident(server) > at_start, "the answers wait");
    are_closed(batches).await;
    probe.end(name);
    memory_is_given_back(server, at_start, name).await;

    let name = "A2, JSON";
    let probe = LivenessProbe::start(main);
    let body = endless_batch((1 << 20) - 20);
    let answers = join_all((0..16).map(|_| server.post(CHECK, body.clone()))).await;
    for answer in answers {
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert!(answer.body.contains("at most 1000"), "{}", answer.body);
    }
    probe.end(name);
    memory_is_given_back(server, at_start, name).await;

    let name = "A2, gRPC";
    let probe = LivenessProbe::start(main);
    for field in [2, 1] {
        // Descriptors without entries, and one descriptor with entries that are empty.
        let length: usize = (16 << 20) - 16;
        let mut message = vec![0x12];
        if field == 1 {
            prost::encoding::encode_varint(length as u64, &mut message);
            message.extend([0x0a, 0].repeat(length / 2));
        } else {
            message = [0x12, 0].repeat(length / 2);
        }
        let prefix = u32::try_from(message.len()).unwrap().to_be_bytes();
        let framed = [&[0][..], &prefix, &message].concat();
        let mut client = http2_client(victim.envoy).await;
        let call = post(victim.envoy, SHOULD_RATE_LIMIT, "application/grpc");
        let response = client.send_request(call.body(full(framed)).unwrap()).await;
        let status = response.unwrap().headers()["grpc-status"].clone();
        assert_eq!(status, "3", "an invalid argument");
    }
    probe.end(name);
    memory_is_given_back(server, at_start, name).await;

    for (name, addr, path, content_type, mut first) in [
        (
            "A3, JSON",
            main,
            CHECK,
            "application/json",
            vec![b' '; 1_000],
        ),
        (
            "A3, gRPC",
            victim.envoy,
            SHOULD_RATE_LIMIT,
            "application/grpc",
            vec![0, 0, 255, 255, 255],
        ),
    ] {
        let probe = LivenessProbe::start(main);
        first.resize(1_000, 0);
        let (first, rest) = (Bytes::from(first), Bytes::from(vec![b' '; 65_000]));
        let clients = join_all((0..2).map(|_| http2_client(addr))).await;
        let sent = clients
            .iter()
            .flat_map(|client| (0..200).map(move |_| client.clone()));
        let sent = sent.map(async |mut client| {
            let parts = [vec![first.clone()], vec![rest.clone(); 15]].concat();
            let parts = parts.into_iter().map(|part| Ok(Frame::data(part)));
            let parts = stream::iter(parts).chain(stream::pending());
            let body = BoxBody::new(StreamBody::new(parts));
            let request = post(addr, path, content_type).body(body).unwrap();
            let response = client.send_request(request).await.unwrap();
            let grpc = response.headers().get("grpc-status").cloned();
            (response.status().as_u16(), grpc)
        });
        let answers = tokio::time::timeout(PATIENCE, join_all(sent)).await;
        let answers = answers.expect("each is answered");
        let refused = answers.iter().filter(|(status, grpc)| {
            *status == 503 || grpc.as_ref().is_some_and(|status| status == "8")
        });
        let refused = refused.count();
        println!("{name}: {refused} of {} refused", answers.len());
        assert!(refused > answers.len() / 2);
        drop(clients);
        probe.end(name);
        memory_is_given_back(server, at_start, name).await;
    }
    let log = server.log();
    for budget in ["rest", "envoy"] {
        let line = format!("budget=\"{budget}\"");
        let lines = log.lines().filter(|logged| logged.contains(&line));
        // At most one a minute.
        assert!((1..=3).contains(&lines.count()), "{log}");
    }

    let name = "A10";
    let probe = LivenessProbe::start(main);
    let scraped = ask_without_window(main, 2, 200, |id| raw_http2::get(id, METRICS)).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let threads = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    assert!(threads.count() < 32);
    probe.end(name);
    let metrics = server.get(METRICS).await.body;
    assert!(metrics.len() > 200_000, "{}", metrics.len());

    // Peers that take nothing are cut off.
    are_closed(unread).await;
    are_closed(scraped).await;
    memory_is_given_back(server, at_start, "at the end").await;
    let metrics = server.get(METRICS).await.body;
    let counts = |name: &str| {
        let mut lines = metrics.lines().filter(|line| line.starts_with(name));
        lines.any(|line| !line.ends_with(" 0"))
    };
    assert!(counts("rate_limiter_stalled_connections_total"));
    assert!(counts("rate_limiter_memory_refusals_total"));
    drop(victim);
}

#[tokio::test]
async fn an_idle_connection_of_http2_is_closed_after_the_header_timeout() {
    let dir = TempDir::new().unwrap();
    let rules = "domain: edge\ndescriptors: [{ key: user }]\n";
    fs::write(dir.path().join("rules.yaml"), rules).unwrap();
    let rules = dir.path().to_str().unwrap();
    let args = [
        "--header-timeout",
        "1s",
        "--envoy-listen",
        "127.0.0.1:0",
        "--envoy-config",
        rules,
    ];
    let server = Server::start(&args);
    let (_, envoy) = server.banner.split_once("  envoy      ").unwrap();
    let envoy: SocketAddr = envoy.split(' ').next().unwrap().parse().unwrap();

    for addr in [server.addr, envoy] {
        let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (mut client, connection) = handshake.unwrap();
        // It answers the pings of the server.
        let ended = tokio::spawn(connection);
        let request = Request::get(format!("http://{addr}{LIVENESS}"))
            .body(full(""))
            .unwrap();
        client.send_request(request).await.unwrap();

        let ended = tokio::time::timeout(PATIENCE, ended).await;

        ended.expect("the server closes it").unwrap().unwrap();
        drop(client);
    }
}

/// Starts a server with limits of open files.
fn start_with_files(limits: &str, args: &[&str]) -> Server {
    Server::start_with(args, |command| {
        let mut limited = std::process::Command::new("sh");
        limited
            .args(["-c", &format!("{limits} && exec \"$0\" \"$@\"")])
            .arg(command.get_program())
            .args(command.get_args());
        *command = limited;
    })
}

#[tokio::test]
async fn the_limit_of_open_files_is_raised_as_far_as_it_goes() {
    let server = start_with_files("ulimit -Sn 128 && ulimit -Hn 2000", &[]);
    let idle: Vec<TcpStream> = (0..1_000)
        .map(|_| TcpStream::connect(server.addr).unwrap())
        .collect();

    assert_eq!(status_at(server.addr, LIVENESS), 200);

    let log = server.log();
    assert!(
        log.contains("--max-connections is 1872 instead of 10000"),
        "{log}"
    );
    assert!(!log.contains("cannot be accepted"), "{log}");
    drop(idle);
}

#[tokio::test]
async fn connections_that_use_up_all_files_leave_some_for_probes_and_redis() {
    let args = ["--admin-listen", "127.0.0.1:0"];
    let server = start_with_files("ulimit -n 300", &args);
    let (_, admin) = server.banner.split_once("metrics    http://").unwrap();
    let admin: SocketAddr = admin.split('/').next().unwrap().parse().unwrap();
    let idle: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(server.addr).unwrap())
        .collect();
    until(async || {
        server
            .log()
            .contains("every connection of the listener")
            .then_some(())
    })
    .await;

    assert_eq!(status_at(admin, LIVENESS), 200);
    let log = server.log();
    assert!(
        log.contains("--max-connections is 44 instead of 10000"),
        "{log}"
    );
    assert!(!log.contains("cannot be accepted"), "{log}");

    drop(idle);
    assert_eq!(server.get(LIVENESS).await.status, 200);
}

#[tokio::test]
async fn more_connections_than_a_machine_has_are_a_warning() {
    let server = Server::start(&["--max-connections", "18446744073709551615"]);

    assert_eq!(server.get(LIVENESS).await.status, 200);

    let log = server.log();
    assert!(log.contains("instead of 18446744073709551615"), "{log}");
}

#[tokio::test]
async fn a_request_of_http_1_1_without_a_host_is_refused() {
    let server = Server::start(&[]);
    let answer = |request: &str| {
        let mut stream = TcpStream::connect(server.addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };

    let refused = answer(&format!("GET {LIVENESS} HTTP/1.1\r\n\r\n"));
    let old = answer(&format!("GET {LIVENESS} HTTP/1.0\r\n\r\n"));

    assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
    assert!(refused.contains("needs a Host header"), "{refused}");
    assert!(old.starts_with("HTTP/1.0 200 "), "{old}");
    let metrics = server.get(METRICS).await.body;
    assert!(metrics.contains("route=\"none\",status=\"400\"} 1"));
}

//! Reloading and ending.

use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use http::StatusCode;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Barrier,
};

use crate::server::{CHECK, OFFENDERS, Server, binary, until, write_atomically};

async fn knows(server: &Server, policy: &str, text: &str) -> Option<()> {
    let info = server.get("/actuator/info").await.json();
    (info["policies"][policy] == text).then_some(())
}

#[tokio::test]
async fn a_changed_file_changes_the_policies_and_keeps_what_was_spent() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.toml");
    fs::write(&path, "[policy]\na = \"fixed_window 5/d\"\n").unwrap();
    let server = Server::start(&["--config", path.to_str().unwrap()]);
    server
        .get(&format!("{CHECK}?policy=a&key=k&permits=4"))
        .await;

    fs::write(&path, "[policy]\na = \"fixed_window 10/d\"\nb = \"1/s\"\n").unwrap();
    until(|| knows(&server, "b", "token_bucket 1/s")).await;

    let answer = server.get(&format!("{CHECK}?policy=a&key=k")).await;
    assert_eq!(answer.json()["remaining"], 5);
}

#[tokio::test]
async fn a_hangup_reads_the_file_again_and_a_mistake_changes_nothing() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.toml");
    let token = dir.path().join("token");
    fs::write(&token, "0123456789abcdef").unwrap();
    fs::write(&path, "[policy]\na = \"1/s\"\n").unwrap();
    let server = Server::start(&["--config", path.to_str().unwrap()]);

    fs::write(&path, "[policy]\na = \"nonsense\"\n").unwrap();
    server.signal("HUP");
    until(|| async { server.log().contains("the old one stays").then_some(()) }).await;
    assert!(knows(&server, "a", "token_bucket 1/s").await.is_some());

    let new = format!("admin-token-file = {token:?}\n[policy]\na = \"2/s\"\n");
    fs::write(&path, new).unwrap();
    server.signal("HUP");
    until(|| knows(&server, "a", "token_bucket 2/s")).await;
    server
        .delete("/api/v1/rate-limit/reset?key=k")
        .await
        .problem(401);
}

#[tokio::test]
async fn a_token_file_that_is_gone_is_logged_once() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("token");
    fs::write(&path, "0123456789abcdef").unwrap();
    let server = Server::start(&["--admin-token-file", path.to_str().unwrap()]);
    let lines = || server.log().matches("cannot be read any more").count();

    fs::remove_file(&path).unwrap();
    until(|| async { (lines() > 0).then_some(()) }).await;

    let request = server.request(http::Method::GET, OFFENDERS);
    let request = request.header("authorization", "Bearer 0123456789abcdef");
    let answer = server.send(request, "").await;
    assert_eq!(answer.status, StatusCode::OK, "the old token stays");
    assert_eq!(lines(), 1);
}

/// Whether the newest version of the files is in force, as a metric.
async fn config_ok(server: &Server, files: &str) -> Option<bool> {
    let metrics = server.get("/actuator/prometheus").await.body;
    let mut lines = metrics.lines();
    let line = lines.find(|line| {
        line.starts_with("rate_limiter_config_ok{") && line.contains(&format!("files=\"{files}\""))
    })?;
    Some(line.ends_with(" 1"))
}

/// Waits until the metric has a value.
async fn until_config_is(server: &Server, is_ok: bool) {
    until(|| async { (config_ok(server, "policies").await == Some(is_ok)).then_some(()) }).await;
}

/// Replaces a file by a FIFO, which blocks whoever opens it.
fn replace_by_fifo(path: &Path) {
    let next = path.with_extension("fifo");
    let made = Command::new("mkfifo").arg(&next).status().unwrap();
    assert!(made.success());
    fs::rename(next, path).unwrap();
}

#[tokio::test]
async fn a_watched_file_that_blocks_its_reader_stops_neither_checks_nor_the_end() {
    let dir = TempDir::new().unwrap();
    let (config, token) = (dir.path().join("server.toml"), dir.path().join("token"));
    fs::write(&token, "0123456789abcdef").unwrap();
    let text = format!("admin-token-file = {token:?}\n[policy]\na = \"1000/s\"\n");
    fs::write(&config, &text).unwrap();
    let mut server = Server::start(&["--config", config.to_str().unwrap()]);
    until_config_is(&server, true).await;

    for path in [&token, &config] {
        replace_by_fifo(path);
        // Requested, so the file is not only looked at.
        server.signal("HUP");
        until_config_is(&server, false).await;
        let check = server.get(&format!("{CHECK}?policy=a&key=k")).await;
        assert_eq!(check.status, StatusCode::OK);
        let live = server.get("/actuator/health/liveness").await;
        assert_eq!(live.status, StatusCode::OK);

        let contents = if path == &token {
            "0123456789abcdef"
        } else {
            &text
        };
        write_atomically(path, contents);
        server.signal("HUP");
        until_config_is(&server, true).await;
    }

    assert!(server.log().contains("expected a regular file"));
    replace_by_fifo(&config);
    server.signal("HUP");
    until_config_is(&server, false).await;
    server.signal("TERM");
    assert!(server.ended().await.success());
}

#[tokio::test]
async fn a_huge_file_is_not_read_and_the_metric_says_so_until_it_is_replaced() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("token");
    fs::write(&path, "0123456789abcdef").unwrap();
    let server = Server::start(&["--admin-token-file", path.to_str().unwrap()]);

    let next = dir.path().join("next");
    File::create(&next).unwrap().set_len(3 << 30).unwrap();
    fs::rename(next, &path).unwrap();
    until(|| reloads(&server, "rejected", 1)).await;

    let log = server.log();
    assert!(log.contains("at most 1048576 bytes"), "{log}");
    assert_eq!(config_ok(&server, "policies").await, Some(false));
    write_atomically(&path, "0123456789abcdef");
    until_config_is(&server, true).await;
}

#[tokio::test]
async fn a_reader_of_the_log_that_hangs_delays_neither_checks_nor_the_end() {
    let mut command = binary();
    command.args(["--listen", "127.0.0.1:0", "--drain-delay", "0"]);
    command.args(["--log", "trace", "--policy", "a=1000000/s"]);
    let mut server = Server::spawn_with_stderr(command, |_| Stdio::piped());
    // Nobody reads until the end of this test.
    let mut stderr = server.stderr();

    let dropped = until(|| async {
        for _ in 0..100 {
            let check = server.get(&format!("{CHECK}?policy=a&key=k")).await;
            assert_eq!(check.status, StatusCode::OK);
        }
        let metrics = server.get("/actuator/prometheus").await.body;
        let name = "rate_limiter_log_lines_dropped_total{";
        let line = metrics.lines().find(|line| line.starts_with(name))?;
        let dropped: u64 = line.split(' ').next_back()?.parse().ok()?;
        (dropped > 0).then_some(dropped)
    });
    assert!(dropped.await > 0);

    let live = server.get("/actuator/health/liveness").await;
    assert_eq!(live.status, StatusCode::OK);
    server.signal("TERM");
    assert!(server.ended().await.success());
    let mut log = String::new();
    stderr.read_to_string(&mut log).unwrap();
    assert!(log.contains("ratelimit_server"), "the first lines are kept");
}

#[tokio::test]
async fn signals_that_others_send_by_habit_do_not_end_the_server() {
    let server = Server::start(&["--policy", "a=10/s"]);

    for signal in ["USR1", "USR2", "PIPE"] {
        server.signal(signal);
        let check = server.get(&format!("{CHECK}?policy=a&key=k")).await;
        assert_eq!(check.status, StatusCode::OK, "{signal}");
    }

    until(|| async { server.log().contains("SIGUSR1 has no effect").then_some(()) }).await;
}

#[tokio::test]
async fn a_start_screen_that_cannot_be_printed_is_logged_and_the_server_serves() {
    let mut command = binary();
    command.args(["--listen", "127.0.0.1:0", "--drain-delay", "0"]);
    command.stdout(File::create("/dev/full").unwrap());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut log, &mut line).unwrap();

    assert!(
        line.contains("the start screen cannot be printed"),
        "{line}"
    );
    assert_eq!(child.try_wait().unwrap(), None, "it serves");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Replaces a file as a secret store does, and keeps its modification time.
fn replace(path: &Path, contents: &str) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let new = path.with_extension("new");
    fs::write(&new, contents).unwrap();
    let file = File::options().append(true).open(&new).unwrap();
    file.set_modified(modified).unwrap();
    fs::rename(&new, path).unwrap();
}

#[tokio::test]
async fn a_replaced_token_file_ends_the_old_token_even_with_equal_time_and_length() {
    let (old, new) = ("0123456789abcdef", "fedcba9876543210");
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("token");
    fs::write(&path, old).unwrap();
    let server = Server::start(&["--admin-token-file", path.to_str().unwrap()]);
    let status = async |token: &str| {
        let request = server.request(http::Method::GET, OFFENDERS);
        let request = request.header("authorization", format!("Bearer {token}"));
        server.send(request, "").await.status.as_u16()
    };
    assert_eq!((status(old).await, status(new).await), (200, 401));

    replace(&path, new);
    // Wrong tokens are counted, so the new one is not tried before the reload.
    until(|| reloads(&server, "ok", 1)).await;
    assert_eq!((status(old).await, status(new).await), (401, 200));

    replace(&path, "short");
    until(|| reloads(&server, "rejected", 1)).await;
    assert_eq!(status(new).await, 200);
}

#[tokio::test]
async fn a_replaced_file_of_equal_time_and_length_is_read() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.toml");
    fs::write(&path, "[policy]\na = \"1/s\"\n").unwrap();
    let server = Server::start(&["--config", path.to_str().unwrap()]);

    replace(&path, "[policy]\na = \"2/s\"\n");

    until(|| knows(&server, "a", "token_bucket 2/s")).await;
}

#[tokio::test]
async fn a_reload_names_the_changed_settings_that_need_a_restart() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.toml");
    fs::write(&path, "max-body = 1000\n").unwrap();
    let server = Server::start(&["--config", path.to_str().unwrap()]);

    let changed = "max-body = 2000\nredis = \"redis://:secret@127.0.0.1:1\"\nlog-keys = true\n";
    fs::write(&path, changed).unwrap();
    until(|| reloads(&server, "ok", 1)).await;

    let log = server.log();
    assert!(log.contains("need a restart: redis, max-body\n"), "{log}");
    assert!(!log.contains("secret"), "{log}");
}

async fn reloads(server: &Server, result: &str, count: u64) -> Option<()> {
    let metrics = server.get("/actuator/prometheus").await.body;
    let mut lines = metrics.lines();
    let line = lines.find(|line| {
        line.starts_with("rate_limiter_policy_reloads_total{")
            && line.contains(&format!("result=\"{result}\""))
    })?;
    line.ends_with(&format!(" {count}")).then_some(())
}

#[tokio::test]
async fn a_broken_file_keeps_the_old_policies_counts_and_says_so() {
    for (name, good, broken, better) in [
        (
            "server.toml",
            "[policy]\na = \"1/s\"\n",
            "[policy]\na = \"2/s\"\nb = { limit = \"1/s\" }\n",
            "[policy]\na = \"3/s; 30/s\"\n",
        ),
        (
            "server.yaml",
            "policy:\n  a: 1/s\n",
            "policy:\n  a: 2/s\n  b: { limit: 1/s }\n",
            "policy:\n  a: 3/s; 30/s\n",
        ),
    ] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join(name);
        fs::write(&path, good).unwrap();
        let server = Server::start(&["--config", path.to_str().unwrap()]);
        until(|| reloads(&server, "rejected", 0)).await;

        write_atomically(&path, broken);
        until(|| reloads(&server, "rejected", 1)).await;

        assert!(knows(&server, "a", "token_bucket 1/s").await.is_some());
        let log = server.log();
        let told: Vec<_> = log
            .lines()
            .filter(|line| line.contains("the old one stays"))
            .collect();
        assert_eq!(told.len(), 1, "{log}");
        for code in ["unknown-field", "missing-field"] {
            let finding = format!("{}:3: error[{code}]", path.display());
            assert!(told[0].contains(&finding), "{log}");
        }

        fs::write(&path, better).unwrap();
        until(|| reloads(&server, "ok", 1)).await;
        assert!(
            knows(&server, "a", "token_bucket 3/s; token_bucket 30/s")
                .await
                .is_some()
        );
        let log = server.log();
        assert!(log.contains("warning[shadowed-limit]"), "{log}");
    }
}

#[tokio::test]
async fn a_file_that_was_cut_off_changes_nothing() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.yml");
    fs::write(&path, "policy: { a: 1/s }\n").unwrap();
    let server = Server::start(&["--config", path.to_str().unwrap()]);

    fs::write(&path, "").unwrap();
    until(|| reloads(&server, "rejected", 1)).await;

    assert!(knows(&server, "a", "token_bucket 1/s").await.is_some());
    assert!(server.log().contains("server.yml:1: error[empty-file]"));
}

#[tokio::test]
async fn an_idle_server_ends_with_zero() {
    let mut server = Server::start(&[]);
    assert_eq!(server.get(CHECK).await.status, StatusCode::OK);

    server.signal("TERM");

    assert_eq!(server.ended().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_dropped_when_it_ends_under_load() {
    const CLIENTS: usize = 32;
    let mut server = Server::start(&["--policy", "huge=fixed_window 1000000/d"]);
    let running = Arc::new(Barrier::new(CLIENTS + 1));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| tokio::spawn(ask_until_told_to_go(server.addr, Arc::clone(&running))))
        .collect();
    running.wait().await;

    server.signal("TERM");

    let mut answered = 0;
    for client in clients {
        answered += client.await.unwrap();
    }
    assert!(answered > CLIENTS);
    assert_eq!(server.ended().await.code(), Some(0));
    println!("{answered} requests answered, none dropped");
}

/// Asks on one connection until an answer says that it ends; every request must be answered.
async fn ask_until_told_to_go(addr: std::net::SocketAddr, running: Arc<Barrier>) -> usize {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let request = format!("GET {CHECK}?policy=huge&key=k HTTP/1.1\r\nhost: localhost\r\n\r\n");
    for answered in 1.. {
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = read_answer(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        if answered == 10 {
            running.wait().await;
        }
        if answer.contains("connection: close") {
            return answered;
        }
    }
    unreachable!("the loop has no end")
}

async fn read_answer(stream: &mut TcpStream) -> String {
    let mut answer = String::new();
    let mut chunk = [0; 1024];
    while !answer.ends_with('}') {
        let length = stream.read(&mut chunk).await.unwrap();
        assert_ne!(length, 0, "dropped after {answer:?}");
        answer.push_str(str::from_utf8(&chunk[..length]).unwrap());
    }
    answer
}

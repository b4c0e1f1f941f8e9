//! The listener for Envoy on a unix socket.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::Path,
    process::Output,
};

use ratelimit_envoy::proto::envoy::service::ratelimit::v3::{
    rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient,
};
use tempfile::TempDir;
use tonic::transport::Endpoint;

use super::{envoy_listen, request};
use crate::server::{Server, binary, until};

const RULES: &str = "
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 2 } }
";

/// A folder with rules and room for a socket.
fn folder() -> (TempDir, String, String) {
    let dir = TempDir::new().unwrap();
    let rules = dir.path().join("rules");
    fs::create_dir(&rules).unwrap();
    fs::write(rules.join("edge.yaml"), RULES).unwrap();
    let socket = dir.path().join("envoy.sock").to_str().unwrap().to_owned();
    let rules = rules.to_str().unwrap().to_owned();
    (dir, rules, socket)
}

fn start(rules: &str, socket: &str) -> Server {
    let listen = format!("unix:{socket}");
    let server = Server::start(&["--envoy-listen", &listen, "--envoy-config", rules]);
    assert_eq!(envoy_listen(&server.banner), listen);
    server
}

/// The end of a server that cannot start.
fn refused(rules: &str, socket: &str) -> Output {
    let listen = format!("unix:{socket}");
    let mut server = std::process::Command::new("timeout");
    server.arg("20").arg(binary().get_program());
    server.args(["--listen", "127.0.0.1:0", "--envoy-config", rules]);
    server.args(["--envoy-listen", &listen]).output().unwrap()
}

async fn code(socket: &str) -> Code {
    let endpoint = Endpoint::from_shared(format!("unix:{socket}")).unwrap();
    let mut client = RateLimitServiceClient::new(endpoint.connect().await.unwrap());
    let response = client.should_rate_limit(request("edge", "user", b"a"));
    response.await.unwrap().into_inner().overall_code()
}

#[tokio::test]
async fn a_unix_socket_is_served_and_its_file_removed_at_the_end() {
    let (_dir, rules, socket) = folder();
    let mut server = start(&rules, &socket);

    for expected in [Code::Ok, Code::Ok, Code::OverLimit] {
        assert_eq!(code(&socket).await, expected);
    }

    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    server.signal("TERM");
    assert!(server.ended().await.success());
    assert!(!Path::new(&socket).exists());
}

#[tokio::test]
async fn the_socket_of_a_killed_server_is_replaced() {
    let (_dir, rules, socket) = folder();
    let killed = start(&rules, &socket);
    // It is killed with SIGKILL.
    drop(killed);
    assert!(Path::new(&socket).exists());

    let _server = start(&rules, &socket);

    assert_eq!(code(&socket).await, Code::Ok);
}

#[tokio::test]
async fn a_socket_in_use_and_another_file_are_errors() {
    let (dir, rules, socket) = folder();
    let other = UnixListener::bind(&socket).unwrap();
    let in_use = refused(&rules, &socket);
    drop(other);
    let file = dir.path().join("file").to_str().unwrap().to_owned();
    fs::write(&file, "kept").unwrap();
    let no_socket = refused(&rules, &file);

    for (ended, why) in [
        (in_use, "another process listens on it"),
        (no_socket, "the file is not a socket"),
    ] {
        let told = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{told}");
        assert!(
            told.contains("cannot listen on unix:") && told.contains(why),
            "{told}"
        );
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
}

#[tokio::test]
async fn a_file_of_another_server_is_not_removed() {
    let (_dir, rules, socket) = folder();
    let mut server = start(&rules, &socket);
    fs::remove_file(&socket).unwrap();
    let _other = UnixListener::bind(&socket).unwrap();

    server.signal("TERM");

    assert!(server.ended().await.success());
    assert!(Path::new(&socket).exists());
}

#[tokio::test]
async fn a_file_that_is_removed_is_logged() {
    let (_dir, rules, socket) = folder();
    let server = start(&rules, &socket);
    fs::remove_file(&socket).unwrap();

    let gone = "the file of the unix socket is gone or replaced";
    until(async || server.log().contains(gone).then_some(())).await;
}

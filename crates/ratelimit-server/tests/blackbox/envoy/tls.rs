//! TLS of the listener for Envoy.

use ratelimit_envoy::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use ratelimit_tests::chaos::Certificates;

use super::{EnvoyServer, ask_by_curl, request};

const RULES: &str = "
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 3 } }
";

#[tokio::test]
async fn the_listener_serves_tls_and_asks_for_a_client_certificate() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let files = ["server.pem", "server.key", "root.pem"].map(|name| certificates.file(name));
    let [cert, key, ca] = files.each_ref().map(String::as_str);
    let args = ["--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca];
    let envoy = EnvoyServer::start(RULES, &args);
    let url = format!("https://localhost:{}", envoy.addr.port());
    let asked = request("edge", "user", b"alice");
    let by = |ca: &str, client: &Certificates| {
        let [cert, key] = ["client.pem", "client.key"].map(|name| client.file(name));
        let args = ["--cacert", ca, "--cert", &cert, "--key", &key];
        ask_by_curl(&url, &asked, &args)
    };

    let accepted = by(ca, &certificates).unwrap();

    assert_eq!(accepted.overall_code(), Code::Ok);
    assert_eq!(accepted.statuses[0].limit_remaining, 2);
    let wrong_client = by(ca, &others);
    let wrong_server = by(&others.file("root.pem"), &certificates);
    let no_client = ask_by_curl(&url, &asked, &["--cacert", ca]);
    let plain = ask_by_curl(
        &url.replace("https", "http"),
        &asked,
        &["--http2-prior-knowledge"],
    );
    for refused in [wrong_client, wrong_server, no_client, plain] {
        assert!(refused.is_err(), "{refused:?}");
    }
    let accepted = by(ca, &certificates).unwrap();
    assert_eq!(accepted.statuses[0].limit_remaining, 1);
}

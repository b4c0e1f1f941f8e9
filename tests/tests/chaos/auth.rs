//! Users, passwords, certificates and sockets.

use std::time::Duration;

use ratelimit_core::{FailureMode, RedisConfig};
use ratelimit_tests::{
    chaos::{Certificates, Fixture, Kind, Observations, Ours, endless, ours, scenario, serial},
    redis::RedisProcess,
};
use tokio::task::block_in_place;

use crate::harness::{AT_ONCE, calls, heals, is_checked, key, policy, remaining};

const OUTAGE: Duration = Duration::from_secs(3);
/// The goal, for each second of an outage.
const MOST_ATTEMPTS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_18_a_password_that_is_right_again_heals() {
    scenario::wrong_password(Kind::Ours).await.assert_survived();
}

/// Asks as `user` while the server refuses, mends that, and tells attempts in 3 s and time to heal.
async fn refused_until_mended(user: &str, refusal: &str, mend: &str) -> (usize, Duration) {
    let fixture = Fixture::start(&[]).await;
    fixture.command("ACL SETUSER admin on >root ~* +@all");
    fixture.command(refusal);
    let url = format!("redis://{user}127.0.0.1:{}", fixture.proxy.port());
    let ours = Ours::new(fixture.config_at(&url), FailureMode::Local);

    let (checked, _) = calls(&ours.limiter, &endless(), OUTAGE).await;
    let attempts = fixture.proxy.attempts().len();
    as_admin(&fixture, mend);
    let healed = heals(&ours).await;

    assert_eq!(checked, 0, "{refusal}");
    (attempts, healed)
}

/// Runs a command as the one user who is never refused.
fn as_admin(fixture: &Fixture, line: &str) {
    let url = format!("redis://admin:root@127.0.0.1:{}", fixture.server.port());
    let mut command = redis::Cmd::new();
    for word in line.split(' ') {
        command.arg(word);
    }
    let done = block_in_place(|| command.exec(&mut redis::Client::open(url)?.get_connection()?));
    done.expect("the administrator may do everything");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_18_nobody_is_locked_out_for_good() {
    let observed = Observations::listen();
    let limiter = "limiter:right@";
    for (code, user, refusal, mend) in [
        (
            "NOAUTH",
            "",
            "CONFIG SET requirepass secret",
            "ACL SETUSER default nopass",
        ),
        (
            "WRONGPASS",
            limiter,
            "ACL SETUSER limiter on >wrong ~* +@all",
            "ACL SETUSER limiter >right",
        ),
        (
            "NOPERM",
            limiter,
            "ACL SETUSER limiter on >right ~* +@all -@scripting",
            "ACL SETUSER limiter +@scripting",
        ),
    ] {
        let (attempts, healed) = refused_until_mended(user, refusal, mend).await;

        println!("row 18 {code}: {attempts} attempts in 3 s, healed in {healed:?}");
        assert!(
            (1..=3 * MOST_ATTEMPTS).contains(&attempts),
            "{code}: {attempts}"
        );
    }
    assert!(
        !observed.lines("").is_empty(),
        "no log line tells the observed"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_18_a_key_that_is_not_permitted_fails_alone() {
    let fixture = Fixture::start(&[]).await;
    let allowed = format!(
        "~{}:v1:mine:* ~{}:v1:probe*",
        fixture.prefix(),
        fixture.prefix()
    );
    fixture.command(&format!("ACL SETUSER limiter on >right +@all {allowed}"));
    let url = format!("redis://limiter:right@127.0.0.1:{}", fixture.proxy.port());
    let config = fixture.config_at(&url).timeout(AT_ONCE);
    let ours = ours(config, FailureMode::Closed).await;
    let (mine, theirs) = (policy("mine", "10/h"), policy("theirs", "10/h"));

    for left in (0..10).rev() {
        let refused = ours.limiter.check(&theirs, &key("k")).await;
        let decided = ours.limiter.check(&mine, &key("k")).await;

        assert!(!is_checked(&refused));
        assert_eq!(remaining(&decided), left);
    }
}

/// A server that speaks TLS on the first port, and plainly on its own.
fn tls_server(certificates: &Certificates) -> (u16, RedisProcess) {
    // The port was free a moment ago, and stays in the range that no client is given.
    let port = {
        let spare = block_in_place(|| RedisProcess::start(&[]));
        spare.port()
    };
    let arguments = certificates.arguments(port);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    (port, block_in_place(|| RedisProcess::start(&arguments)))
}

fn tls_config(port: u16, certificates: &Certificates) -> RedisConfig {
    RedisConfig::new(&format!("rediss://127.0.0.1:{port}"))
        .and_then(|config| config.tls_root_certificate(certificates.root().as_bytes()))
        .expect("a valid address and certificate")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_tls_server_is_used_and_reconnected() {
    let _serial = serial().await;
    let certificates = Certificates::new();
    let (port, mut server) = tls_server(&certificates);
    let config = tls_config(port, &certificates).timeout(AT_ONCE);
    let ours = ours(config, FailureMode::Closed).await;
    let limit = policy("tls", "10/h");

    let first = ours.limiter.check(&limit, &key("k")).await;
    block_in_place(|| server.restart());
    let healed = heals(&ours).await;
    let second = ours.limiter.check(&limit, &key("k")).await;

    println!("TLS: healed in {healed:?}");
    assert_eq!((remaining(&first), remaining(&second)), (9, 9));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_certificate_that_is_not_trusted_is_not_used() {
    let _serial = serial().await;
    let certificates = Certificates::new();
    let (port, _server) = tls_server(&certificates);
    let stranger = Certificates::new();
    let ours = Ours::new(tls_config(port, &stranger), FailureMode::Local);

    let (checked, unchecked) = calls(&ours.limiter, &endless(), Duration::from_secs(1)).await;

    assert!(checked == 0 && unchecked > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tls_to_a_plain_port_and_the_reverse_keep_no_caller_waiting() {
    let _serial = serial().await;
    let certificates = Certificates::new();
    let (tls_port, server) = tls_server(&certificates);
    let plain = RedisConfig::new(&format!("redis://127.0.0.1:{tls_port}")).unwrap();
    for config in [tls_config(server.port(), &certificates), plain] {
        let ours = Ours::new(config, FailureMode::Local);

        let (checked, unchecked) = calls(&ours.limiter, &endless(), Duration::from_secs(1)).await;

        assert!(checked == 0 && unchecked > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_socket_in_the_file_system_is_a_server_too() {
    let _serial = serial().await;
    let mut server = block_in_place(|| RedisProcess::start(&["--unixsocket", "redis.sock"]));
    let path = server.dir().join("redis.sock").display().to_string();
    for scheme in ["redis+unix", "unix"] {
        let config = RedisConfig::new(&format!("{scheme}://{path}")).unwrap();
        let ours = ours(config.timeout(AT_ONCE), FailureMode::Closed).await;
        let limit = policy(scheme.trim_start_matches("redis+"), "10/h");

        let first = ours.limiter.check(&limit, &key(scheme)).await;
        block_in_place(|| server.restart());
        heals(&ours).await;

        assert_eq!(remaining(&first), 9);
    }
}

//! Settings that would have no effect, and what the server shows of its settings.

use std::{io::Write as _, process::Command};

use tempfile::NamedTempFile;

use crate::server::{Server, binary, until};

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::with_suffix(".toml").unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// Runs a command that must fail, and returns what it printed to standard error.
fn refusal(command: &mut Command) -> String {
    // `timeout` ends a server that starts although it should not.
    let mut bounded = Command::new("timeout");
    bounded.arg("10").arg(command.get_program());
    bounded.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bounded.env(name, value),
            None => bounded.env_remove(name),
        };
    }
    let output = bounded.output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{told}");
    told
}

#[test]
fn a_log_filter_that_names_no_level_is_refused_with_a_hint() {
    let listen = ["--listen", "127.0.0.1:0"];

    let flag = refusal(binary().args(listen).args(["--log", "warning"]));
    let variable = refusal(binary().args(listen).env("RATELIMIT_LOG", "info,debg"));
    let config = file("log = \"warning\"\n");
    let verdict = binary().arg("check-config").arg(config.path()).output();

    assert!(flag.contains("did you mean warn?"), "{flag}");
    for (filter, expected) in [
        ("3", "\"3\" is not a log level"),
        (
            "ratelimit_server::acess=debug",
            "did you mean ratelimit_server::access?",
        ),
    ] {
        let why = refusal(binary().args(listen).args(["--log", filter]));
        assert!(why.contains(expected), "{filter}: {why}");
    }
    assert!(
        variable.contains("\"debg\" is not a log level"),
        "{variable}"
    );
    let checked = String::from_utf8(verdict.unwrap().stdout).unwrap();
    assert!(
        checked.contains(":1: error[bad-value]") && checked.contains("did you mean warn?"),
        "{checked}"
    );
}

#[test]
fn a_policy_that_is_given_twice_is_refused() {
    let listen = ["--listen", "127.0.0.1:0"];
    let twice = ["--policy", "a=1/s", "--policy", "a=2/s"];

    let flags = refusal(binary().args(listen).args(twice));
    let variable = refusal(
        binary()
            .args(listen)
            .env("RATELIMIT_POLICY", "a=1/s,b=1/s,a=2/s"),
    );
    let two_names = [
        "--policy",
        "TOKEN_BUCKET=1/s",
        "--policy",
        "token_bucket=2/s",
    ];
    let aliased = refusal(binary().args(listen).args(two_names));

    assert!(flags.contains("--policy gives a twice"), "{flags}");
    assert!(variable.contains("--policy gives a twice"), "{variable}");
    assert!(aliased.contains("token_bucket twice"), "{aliased}");
}

#[tokio::test]
async fn an_unknown_variable_is_one_warning_with_the_nearest_name() {
    let server = Server::start_with(&[], |command| {
        command.env("RATELIMIT_MEMORY_KEY", "10");
        command.env("RATELIMIT_SERVICE_HOST", "10.0.0.1");
        command.env("RATELIMIT_SERVER_PORT_8080_TCP", "tcp://10.0.0.1:8080");
    });

    let expected = "RATELIMIT_MEMORY_KEY is not a setting; did you mean RATELIMIT_MEMORY_KEYS?";
    until(|| async { server.log().contains(expected).then_some(()) }).await;

    let log = server.log();
    assert_eq!(log.matches("is not a setting").count(), 1, "{log}");
}

#[test]
fn check_config_warns_of_unknown_variables_and_refuses_warnings_if_strict() {
    let config = file("[policy]\na = \"1/s\"\n");
    let check = |strict: &[&str], variable: &str| {
        let mut command = binary();
        command.arg("check-config").args(strict).arg(config.path());
        let output = command.env(variable, "x").output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };

    let (code, told) = check(&[], "RATELIMIT_LISEN");
    assert_eq!(code, Some(0), "{told}");
    assert!(
        told.contains("environment: warning[unknown-variable]: the variable RATELIMIT_LISEN"),
        "{told}"
    );
    let (code, told) = check(&["--strict"], "RATELIMIT_LISEN");
    assert_eq!(code, Some(1), "{told}");
    let (code, told) = check(&["--strict"], "RATELIMIT_PORT");
    assert_eq!(code, Some(0), "{told}");
    let overlapping = file("[policy]\na = \"1/s; 100/s\"\n");
    let output = binary()
        .args(["check-config", "--strict"])
        .arg(overlapping.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains(": 1 warning refused by --strict"), "{error}");
}

#[tokio::test]
async fn many_policies_are_shown_in_part() {
    let policies: Vec<String> = (0..10_000).map(|n| format!("p{n:05} = \"1/s\"")).collect();
    let config = file(&format!("[policy]\n{}\n", policies.join("\n")));
    let server = Server::start(&["--config", config.path().to_str().unwrap()]);

    let info = server.get("/actuator/info").await;

    let banner = &server.banner;
    assert!(banner.lines().count() < 40, "{banner}");
    assert!(banner.contains("and 9985 more"), "{banner}");
    assert!(info.body.len() < 4_000, "{}", info.body.len());
    assert_eq!(info.json()["policies"].as_object().unwrap().len(), 20);
    assert_eq!(info.json()["morePolicies"], 9985);
}

#[tokio::test]
async fn tiers_throttle_shadow_and_cost_are_shown() {
    let config = file(
        "[policy.api]\nlimits = \"10/s\"\ncost = 2\nthrottle = \"soft 10%\"\nshadow = true\n\
         tiers = { pro = \"100/s\" }\n",
    );
    let path = config.path().to_str().unwrap();
    let expected = "token_bucket 10/s (cost 2, soft 10%, shadow, tier pro: token_bucket 100/s)";

    let server = Server::start(&["--config", path]);
    let info = server.get("/actuator/info").await.json();
    let checked = binary().args(["check-config", path]).output().unwrap();

    assert!(server.banner.contains(expected), "{}", server.banner);
    assert_eq!(info["policies"]["api"], expected);
    assert_eq!(info.get("morePolicies"), None);
    let checked = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.contains(expected), "{checked}");
}

#[test]
fn an_invalid_address_of_redis_is_named_without_its_password() {
    let url = "redis://user:s3cr3t@127.0.0.1:99999";

    let flag = refusal(binary().args(["--redis", url]));
    let variable = refusal(binary().env("RATELIMIT_REDIS", url));
    let store = refusal(binary().args([
        "simulate",
        "--limit",
        "1/s",
        "--traffic",
        "steady",
        "--store",
        url,
    ]));

    for told in [flag, variable, store] {
        assert!(told.contains("redis://127.0.0.1:99999"), "{told}");
        assert!(!told.contains("s3cr3t"), "{told}");
    }
}

#[test]
fn equal_listeners_are_refused_by_check_config_too() {
    for (listen, admin) in [
        ("127.0.0.1:9000", "127.0.0.1:9000"),
        ("0.0.0.0:9000", "127.0.0.1:9000"),
        ("127.0.0.1:9000", "[::]:9000"),
    ] {
        let config = file(&format!(
            "listen = \"{listen}\"\nadmin-listen = \"{admin}\"\n"
        ));
        let checked = refusal(binary().arg("check-config").arg(config.path()));
        assert!(checked.contains("is the address of listen"), "{checked}");
    }
    let config = file("listen = \"127.0.0.1:9000\"\nadmin-listen = \"127.0.0.1:9001\"\n");
    let checked = binary().arg("check-config").arg(config.path()).output();
    assert!(checked.unwrap().status.success());
}

//! Flags, environment and file.

use std::{io::Write as _, process::Output};

use tempfile::NamedTempFile;

use crate::server::{CHECK, Server, binary};

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::with_suffix(".toml").unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn check_config(text: &str) -> Output {
    let file = file(text);
    binary()
        .arg("check-config")
        .arg(file.path())
        .output()
        .unwrap()
}

#[tokio::test]
async fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let file = file(
        "listen = \"127.0.0.1:0\"\napplication = \"file\"\nheaders = \"none\"\n[policy]\na = \"1/h\"\nb = \"1/h\"\n",
    );
    let path = file.path().to_str().unwrap();

    let server = Server::start_with(&["--config", path, "--policy", "b=2/h"], |command| {
        command.env("RATELIMIT_APPLICATION", "environment");
        command.env("RATELIMIT_HEADERS", "ratelimit");
    });

    let info = server.get("/actuator/info").await.json();
    assert_eq!(info["app"]["name"], "environment");
    assert_eq!(info["policies"]["a"], "token_bucket 1/h");
    assert_eq!(info["policies"]["b"], "token_bucket 2/h");
    let check = server.get(&format!("{CHECK}?policy=a&key=k")).await;
    assert_eq!(check.header("ratelimit-limit"), Some("1"));
}

#[test]
fn the_environment_has_lists() {
    let server = Server::start_with(&[], |command| {
        command.env("RATELIMIT_POLICY", "a=1/h; 2/d,b=3/h");
        command.env("RATELIMIT_TRUSTED", "10.0.0.0/8,192.168.0.1");
        command.env("RATELIMIT_LOG_KEYS", "true");
    });

    assert!(server.banner.contains("token_bucket 1/h; token_bucket 2/d"));
    assert!(server.banner.contains("token_bucket 3/h"));
}

#[test]
fn the_first_screen_says_what_to_try() {
    let server = Server::start(&["--redis", "redis://user:s3cr3t@127.0.0.1:1/0"]);

    let addr = server.addr;
    for part in [
        format!("listening  http://{addr}"),
        "store      redis://127.0.0.1:1/0".to_owned(),
        "token_bucket 10/s burst 100".to_owned(),
        format!("curl -i 'http://{addr}/api/v1/rate-limit/check?key=user:123'"),
    ] {
        assert!(server.banner.contains(&part), "{part}: {}", server.banner);
    }
    assert!(!server.banner.contains("s3cr3t"));
    assert!(server.banner.lines().count() <= 24);
}

#[test]
fn the_help_names_every_flag() {
    let help = binary().arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();

    for flag in [
        "--listen",
        "--redis",
        "--trusted",
        "--policy",
        "--config",
        "--admin-token-file",
        "--key-pattern",
    ] {
        let variable = flag
            .trim_start_matches('-')
            .replace('-', "_")
            .to_uppercase();
        assert!(
            help.contains(flag) && help.contains(&format!("RATELIMIT_{variable}")),
            "{flag}"
        );
    }
    for command in ["check-config", "simulate", "client-key"] {
        assert!(help.contains(command));
    }
}

#[test]
fn a_good_file_passes_the_check() {
    let output = check_config("redis = \"redis://cache\"\n[policy]\nlogin = \"5/min; 20/h\"\n");

    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(
        told.contains("policy login = token_bucket 5/min; token_bucket 20/h")
            && told.ends_with(": ok\n")
    );
}

#[test]
fn a_bad_file_fails_the_check_with_its_line() {
    let mistakes = [
        ("\nlisen = \"127.0.0.1:1\"", ":2: error[unknown-field]"),
        ("\nmemory-keys = -1", ":2: error[bad-value]"),
        ("memory-keys = 0", ":1: error[bad-value]"),
        ("max-body = -1", ":1: error[bad-value]"),
        (
            "[policy]\na = \"5/min\"\na = \"5/min\"",
            ":3: error[duplicate-name]",
        ),
        (
            "policy = [\"a=5/min\", \"a=6/min\"]",
            ":1: error[duplicate-name]",
        ),
        ("policy = [\"a\"]", ":1: error[bad-value]"),
        (
            "[policy]\ntoken_bucket = \"5/min\"\nTOKEN_BUCKET = \"5/min\"",
            "there twice",
        ),
        ("[policy]\na = \"0/min\"", ":2: error[bad-limit]"),
        ("[policy]\na = \"5/0s\"", ":2: error[bad-limit]"),
        ("[policy]\na = \"5/9007199255s\"", ":2: error[bad-limit]"),
        ("[policy]\n\"a b\" = \"5/s\"", ":2: error[bad-name]"),
        ("redis = \"http://cache\"", ":1: error[bad-value]"),
        ("\nredis-prefix = \"a{b\"", ":2: error[bad-value]"),
        ("request-timeout = \"-5s\"", ":1: error[bad-value]"),
        ("ipv6-prefix = 129", ":1: error[bad-value]"),
        ("ipv6-prefix = 1000", ":1: error[bad-value]"),
        ("on-failure = \"ignore\"", ":1: error[unknown-failure-mode]"),
        ("headers = \"all\"", "ratelimit"),
        ("\nlog-format = \"xml\"", ":2: error[bad-value]"),
        ("log-keys = \"yes\"", ":1: error[wrong-type]"),
        ("trusted = [\"0.0.0.0/0\"]", ":1: error[trusts-everyone]"),
        (
            "trusted = [\n\"10.0.0.0/8\",\n\"10.0.0.0/33\"]",
            ":3: error[bad-value]",
        ),
        ("admin-token-file = \"/nonexistent\"", "/nonexistent"),
        ("log = \"a=b=c\"", ":1: error[bad-value]"),
        ("key-pattern = \"(\"", ":1: error[bad-value]"),
        ("chain-header = \"a b\"", ":1: error[bad-value]"),
        ("not toml", ":1: error[syntax]"),
    ];
    for (text, expected) in mistakes {
        let output = check_config(text);
        let told = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}: {told}");
        assert!(told.contains(expected), "{text}: {told}");
        assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1);
    }
}

#[test]
fn a_policy_whose_keys_do_not_fit_into_the_memory_fails_the_check() {
    let file =
        |bytes| format!("memory-bytes = {bytes}\n[policy]\na = \"sliding_window_log 10000/h\"\n");
    let refused = check_config(&file(500_000));
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(
        told.contains("a key of policy a takes up to 160") && told.lines().count() == 1,
        "{told}"
    );

    assert!(check_config(&file(16 << 20)).status.success());
}

#[test]
fn every_flag_can_stand_in_the_file() {
    let help = binary().arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let flags = help
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("--"))
        .filter(|flag| !["config", "help", "version"].contains(flag))
        .filter(|flag| {
            flag.chars()
                .all(|letter| letter.is_ascii_lowercase() || "-6".contains(letter))
        });
    for flag in flags {
        let told = check_config(&format!("{flag} = 1979-05-27\n")).stdout;
        let told = String::from_utf8(told).unwrap();
        assert!(told.contains(":1: error[wrong-type]"), "{flag}: {told}");
    }
}

#[test]
fn a_server_with_a_bad_configuration_does_not_start() {
    let file = file("lisen = 1");
    for args in [
        &["--config", file.path().to_str().unwrap()][..],
        &["--config", "/nonexistent"],
        &["--redis", "redis:"],
        &["--policy", "login"],
        &["--listen", "everywhere"],
        &["--hops", "-1"],
    ] {
        let output = binary().args(args).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        assert!(!output.stderr.is_empty());
    }
}

#[tokio::test]
async fn an_address_that_is_taken_is_an_error() {
    let server = Server::start(&[]);

    let output = binary()
        .args(["--listen", &server.addr.to_string()])
        .output()
        .unwrap();

    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("cannot listen on")
    );
}

#[tokio::test]
async fn keys_are_logged_only_with_log_keys() {
    let quiet = Server::start(&["--log", "trace", "--policy", "one=1/h"]);
    let args = ["--log-keys", "--log-format", "json", "--policy", "one=1/h"];
    let open = Server::start(&[&args[..], &["--log", "info,ratelimit_core=debug"]].concat());

    for server in [&quiet, &open] {
        for _ in 0..2 {
            server
                .get(&format!("{CHECK}?policy=one&key=somebody"))
                .await;
        }
    }

    assert!(!quiet.log().contains("somebody"), "{}", quiet.log());
    let log = open.log();
    let denials: Vec<serde_json::Value> = log
        .lines()
        .filter(|line| line.contains("somebody"))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(denials.len(), 1, "one line for each denial: {log}");
    let field = |name: &str| denials[0][name].clone();
    assert_eq!(field("message"), "denied");
    assert_eq!(field("policy"), "one");
    assert_eq!(field("limit"), "token_bucket 1/h");
    assert_eq!(field("key"), "key:somebody");
    assert_eq!(field("cost"), 1);
    assert_eq!(field("enforced"), true);
    assert!(field("retry_after").is_string(), "{log}");
}

#[tokio::test]
async fn log_keys_writes_no_line_for_each_denial() {
    let server = Server::start(&["--log-keys", "--policy", "one=1/h"]);

    for _ in 0..20 {
        server
            .get(&format!("{CHECK}?policy=one&key=somebody"))
            .await;
    }

    assert!(!server.log().contains("denied"), "{}", server.log());
}

#[test]
fn settings_about_proxies_that_exclude_each_other_are_errors() {
    let everyone = "--trust-everyone";
    for (args, expected) in [
        (
            &["--hops", "1", "--trusted", "10.0.0.0/8"][..],
            "hops excludes trusted",
        ),
        (&["--hops", "1", everyone], "hops excludes trust-everyone"),
        (
            &["--trusted", "10.0.0.1", everyone],
            "trust-everyone excludes trusted",
        ),
        (
            &["--hops", "1", "--max-hops", "3"],
            "max-hops has no effect with hops",
        ),
        (
            &["--hops", "2", "--chain-header", "CF-Connecting-IP"],
            "hops above 1 finds nothing",
        ),
        (&["--path-header", "X-Uri"], "path-header has no effect"),
        (
            &["--hops", "0", "--path-header", "X-Uri"],
            "path-header has no effect",
        ),
        (
            &["--chain-header", "Forwarded"],
            "chain-header has no effect",
        ),
        (&["--ipv6-prefix", "31"], "expected 32 to 128"),
        (&["--ipv6-prefix", "0"], "expected 32 to 128"),
    ] {
        let output = binary().args(args).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {told}");
        assert!(told.contains(expected), "{args:?}: {told}");
    }
    let output = binary()
        .env("RATELIMIT_TRUSTED", "10.0.0.0/8")
        .args(["--hops", "1"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));

    for (text, expected) in [
        (
            "trusted = [\"10.0.0.0/8\"]\nhops = 1\n",
            ":2: error[conflicting-fields]: hops excludes trusted",
        ),
        ("ipv6-prefix = 31\n", ":1: error[bad-value]"),
    ] {
        let output = check_config(text);
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(told.contains(expected), "{told}");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[tokio::test]
async fn spaces_around_the_networks_of_trusted_proxies_are_trimmed() {
    let server = Server::start_with(&[], |command| {
        command.env("RATELIMIT_TRUSTED", "127.0.0.1, 10.0.0.0/8");
    });
    let request = server.request(http::Method::GET, CHECK);
    let answer = server
        .send(
            request.header("x-forwarded-for", "203.0.113.7, 10.1.2.3"),
            "",
        )
        .await;
    assert_eq!(answer.json()["key"], "ip:203.0.113.7");
}

#[test]
fn the_help_is_in_groups_and_the_short_help_has_the_flags_of_a_start() {
    let help = |flag: &str| {
        let output = binary().arg(flag).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let (short, long) = (help("-h"), help("--help"));

    assert!(short.lines().count() < 80, "{short}");
    assert!(
        short.contains("--policy") && !short.contains("--envoy-xds-server"),
        "{short}"
    );
    let groups = [
        "Options:",
        "Listeners:",
        "Policies:",
        "Budgets:",
        "Proxies:",
        "Operators:",
        "Responses and bounds:",
        "Logs and metrics:",
        "Envoy:",
    ];
    let places: Vec<usize> = groups
        .iter()
        .map(|group| {
            long.find(&format!("\n{group}\n"))
                .unwrap_or_else(|| panic!("{group}"))
        })
        .collect();
    assert!(places.is_sorted(), "{places:?}");
    // The file is the first flag, and no flag stands outside of the groups.
    let (_, options) = long.split_once("\nOptions:\n").unwrap();
    assert!(
        options.trim_start().starts_with("--config <FILE>"),
        "{options}"
    );
    let (options, _) = options.split_once("\nListeners:\n").unwrap();
    assert_eq!(options.matches("\n      --").count(), 0, "{options}");
    assert!(long.find("--envoy-listen <").unwrap() > *places.last().unwrap());
}

#[tokio::test]
async fn flags_add_policies_to_those_of_the_environment() {
    let server = Server::start_with(&["--policy", "a=1/h", "--policy", "b=2/h"], |command| {
        command.env("RATELIMIT_POLICY", "b=9/h,c=3/h");
    });
    let limit = async |policy: &str| {
        let answer = server.get(&format!("{CHECK}?policy={policy}&key=k")).await;
        answer.json()["limit"].as_u64()
    };

    assert_eq!(limit("a").await, Some(1));
    assert_eq!(limit("b").await, Some(2));
    assert_eq!(limit("c").await, Some(3));

    for faulty in ["c=3/minn", "c=1/h,c=2/h"] {
        let output = binary()
            .args(["--policy", "a=1/h", "--redis", "redis:"])
            .env("RATELIMIT_POLICY", faulty)
            .output()
            .unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(
            told.contains("c=3/minn") || told.contains("gives c twice"),
            "{told}"
        );
    }
}

#[tokio::test]
async fn localhost_is_an_address_to_listen_on_and_other_names_are_explained() {
    let server = Server::start(&["--listen", "localhost:0"]);
    assert!(
        server.banner.contains("listening  http://127.0.0.1:"),
        "{}",
        server.banner
    );

    for (setting, text) in [("listen", "limits.example:8080"), ("admin-listen", "db:1")] {
        let flag = binary()
            .args([&format!("--{setting}"), text])
            .output()
            .unwrap();
        let flag = String::from_utf8(flag.stderr).unwrap();
        let output = check_config(&format!("{setting} = \"{text}\"\n")).stdout;
        let output = String::from_utf8(output).unwrap();
        for told in [flag, output] {
            assert!(
                told.contains("host names other than localhost are not resolved"),
                "{told}"
            );
        }
    }
}

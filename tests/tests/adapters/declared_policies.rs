//! Attributes that name a policy: a name that is not there is an error before the first request.

use std::process::Command;

use axum::{Extension, Router, routing::get};
use ratelimit_core::Policy;
use ratelimit_http::registry::Registry;
use ratelimit_tests::handlers;

use crate::{
    client,
    log::Log,
    server::{serve_actix, serve_axum},
};

const OF_AXUM: &str = include_str!("attribute/of_axum.rs");
const OF_ACTIX: &str = include_str!("attribute/of_actix.rs");
const OF_A_LIBRARY: &str = include_str!("../../src/handlers.rs");

fn registry(names: &[&str]) -> Registry {
    let policies = names.iter().map(|name| Policy::parse(name, "5/min"));
    Registry::from_policies(policies.map(|policy| policy.expect("a policy")))
}

/// How an attribute is told, by the text of its file.
fn told(file: &str, source: &str, handler: &str, policy: &str) -> String {
    let attribute = format!("rate_limit(policy = {policy:?})");
    let function = format!("fn {}(", handler.rsplit("::").next().expect("a name"));
    let lines: Vec<&str> = source.lines().collect();
    let place = lines
        .windows(2)
        .position(|pair| pair[0].contains(&attribute) && pair[1].contains(&function));
    let line = place.expect("the attribute") + 1;
    format!("#[{attribute}] on {handler} at {file}:{line}")
}

/// What the registry of the tests leaves out, in both frameworks, in this program and in a library.
#[test]
fn a_registry_for_attributes_has_all_they_name_or_says_where_each_stands() {
    let missing = registry(&["login"]).check_declared();
    let told_all = missing.expect_err("some are missing").to_string();

    for (file, source, handler, policy) in [
        (
            "tests/tests/adapters/attribute/of_actix.rs",
            OF_ACTIX,
            "adapters::attribute::of_actix::lost",
            "missing",
        ),
        (
            "tests/tests/adapters/attribute/of_axum.rs",
            OF_AXUM,
            "adapters::attribute::of_axum::lost",
            "missing",
        ),
        (
            "tests/src/handlers.rs",
            OF_A_LIBRARY,
            "ratelimit_tests::handlers::actix",
            "of_a_library",
        ),
        (
            "tests/src/handlers.rs",
            OF_A_LIBRARY,
            "ratelimit_tests::handlers::axum",
            "of_a_library",
        ),
    ] {
        let expected = told(file, source, handler, policy);
        assert_eq!(
            told_all.matches(&expected).count(),
            1,
            "{expected} in {told_all}"
        );
    }
    assert!(!told_all.contains("::login at"), "{told_all}");
    assert!(told_all.ends_with("; add it, or write one of: login"));

    let all = registry(&["login", "missing", "of_a_library"]).check_declared();
    let reload = all
        .expect("all are there")
        .reload_toml("[policy]\nlogin = '3/min'");
    let refused = reload.expect_err("two would be gone").to_string();
    assert!(refused.contains("on ratelimit_tests::handlers::axum at"));
}

#[test]
fn a_program_with_a_misspelt_policy_does_not_start() {
    let program = Command::new(env!("CARGO_BIN_EXE_misnamed")).output();
    let program = program.expect("it runs");
    let error = String::from_utf8(program.stderr).expect("text");

    assert!(!program.status.success());
    assert_eq!(String::from_utf8_lossy(&program.stdout), "");
    let told = "#[rate_limit(policy = \"logn\")] on misnamed::login at tests/src/bin/misnamed.rs:7";
    assert!(error.contains(told), "{error}");
    assert!(error.contains("add it, or write one of: login"), "{error}");
}

/// Nothing at the start asks: then the first request does, once for a handler.
#[tokio::test]
async fn without_an_installed_registry_the_first_request_says_so_once() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let router = Router::new().route("/", get(handlers::axum));
    let axum = serve_axum(router.layer(Extension(registry(&["login"])))).await;

    for _ in 0..3 {
        assert_eq!(client::get(axum, "/").await.status, 500);
    }

    let told = "there is no policy \"of_a_library\" among login, \
        for #[rate_limit(policy = \"of_a_library\")] on ratelimit_tests::handlers::axum at";
    assert_eq!(log.holding(told), 1);
    assert_eq!(
        log.holding("set_global_registry(registry) or registry.check_declared()"),
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_of_a_library_is_found_in_both() {
    let registry = registry(&["login", "missing", "of_a_library"]);
    let registry = registry.check_declared().expect("all are there");
    let router = Router::new().route("/", get(handlers::axum));
    let axum = serve_axum(router.layer(Extension(registry.clone()))).await;
    let actix = serve_actix(move |app| {
        app.app_data(registry.clone());
        app.route("/", actix_web::web::get().to(handlers::actix));
    });

    for server in [axum, actix] {
        let answer = client::get(server, "/").await;
        assert_eq!(
            (answer.status, answer.field("x-ratelimit-limit")),
            (200, Some("5"))
        );
    }
}

//! Rules over xDS beside those of the configuration file.

use std::fs;

use tempfile::TempDir;

use super::{AdsServer, EnvoyServer, RELOADS, domain, reason};
use crate::{envoy::write_atomically, server::until};

/// A configuration with a rule for the users of a domain.
fn config(url: &str, name: &str, per_day: u32) -> String {
    format!(
        "envoy-listen = '127.0.0.1:0'\nenvoy-xds-server = '{url}'\n[[envoy.rule]]\ndomain = '{name}'\n\
         match = ['user']\nlimits = 'fixed_window {per_day}/d'\n"
    )
}

#[tokio::test]
async fn rules_of_the_file_stay_beside_those_of_the_xds_server() {
    let mut ads = AdsServer::start();
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.toml");
    fs::write(&path, config(&ads.url(), "a", 7)).unwrap();
    let args = ["--config", path.to_str().unwrap()];
    let envoy = EnvoyServer::start_with(TempDir::new().unwrap(), &args);
    ads.asked().await;
    assert_eq!(envoy.limits().await, [Some(7), None]);

    // A response keeps the rules of the file.
    ads.apply("1", &[domain("b", 5)]).await;
    assert_eq!(envoy.limits().await, [Some(7), Some(5)]);

    // A reload keeps the rules of the xDS server.
    write_atomically(&path, &config(&ads.url(), "a", 8));
    until(async || (envoy.limits().await == [Some(8), Some(5)]).then_some(())).await;

    // A file with a domain of the xDS server is refused.
    let rejected = async || envoy.metric(RELOADS, r#"result="rejected""#).await;
    assert_eq!(rejected().await, 0);
    write_atomically(&path, &config(&ads.url(), "b", 9));
    until(async || (rejected().await == 1).then_some(())).await;
    assert_eq!(envoy.limits().await, [Some(8), Some(5)]);
    let log = envoy.server.log();
    assert!(log.contains("domain \"b\": error[duplicate-name]"), "{log}");

    // A response without that domain makes both valid.
    let answer = ads.apply("2", &[domain("a", 6)]).await;
    assert_eq!(reason(&answer), "");
    assert_eq!(envoy.limits().await, [Some(6), Some(9)]);

    // A response with a domain of the file is refused, and is applied when the file gives the domain up.
    let answer = ads.apply("3", &[domain("b", 4)]).await;
    assert!(reason(&answer).contains("error[duplicate-name]"));
    assert_eq!(envoy.limits().await, [Some(6), Some(9)]);
    write_atomically(&path, &config(&ads.url(), "other", 1));
    assert_eq!(&*ads.asked().await.version_info, "");
    let answer = ads.apply("3", &[domain("b", 4)]).await;
    assert_eq!(reason(&answer), "");
    assert_eq!(envoy.limits().await, [None, Some(4)]);
}

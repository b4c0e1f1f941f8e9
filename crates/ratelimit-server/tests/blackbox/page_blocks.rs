//! The configuration files that pages show, each read as what it is.

use std::fs;

use ratelimit_core::Policy;
use ratelimit_envoy::RulesBuilder;
use ratelimit_http::policy_file::{Format, PolicyFile};
use ratelimit_tests::page::{Block, Page, root};
use saphyr_parser::Parser;
use tempfile::TempDir;
use toml::de::DeTable;

use crate::server::binary;

/// Reads the blocks of a language on all pages, and returns their number.
fn read_all(language: &str, read: impl Fn(&Block) -> Result<(), String>) -> usize {
    let mut count = 0;
    let mut problems = Vec::new();
    for page in Page::all() {
        for block in page.blocks() {
            // `policy_file.rs` reads the examples with mistakes.
            let is_mistake = block.text.contains("<- ");
            if block.language != language || block.is_untested || is_mistake {
                continue;
            }
            count += 1;
            if let Err(problem) = read(&block) {
                problems.push(format!("{}:{}: {problem}", page.path, block.line));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    count
}

/// Reads a file as a service reads its policies, or else as the server reads its settings.
fn read_policies(text: &str, format: Format, extension: &str) -> Result<(), String> {
    if PolicyFile::parse(text, format).diagnostics.is_empty() {
        return Ok(());
    }
    let dir = TempDir::new().unwrap();
    let token = dir.path().join("ratelimit-server.token");
    fs::write(&token, "0123456789abcdef0123456789abcdef").unwrap();
    let text = text.replace("/etc/ratelimit-server.token", token.to_str().unwrap());
    let path = dir.path().join(format!("server.{extension}"));
    fs::write(&path, text).unwrap();
    let output = binary().arg("check-config").arg(&path).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && !told.contains("]: ") {
        Ok(())
    } else {
        Err(format!("{told}{}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// The crates and features that a manifest names exist.
fn read_manifest(manifest: &DeTable<'_>) -> Result<(), String> {
    let dependencies = manifest.get("dependencies");
    let dependencies = dependencies.and_then(|value| value.get_ref().as_table());
    for (name, dependency) in dependencies.unwrap_or(manifest) {
        let name = name.get_ref();
        if !name.starts_with("ratelimit-") {
            continue;
        }
        let path = root().join("crates").join(&**name).join("Cargo.toml");
        let text = fs::read_to_string(path).map_err(|_| format!("there is no {name}"))?;
        let own = DeTable::parse(&text).map_err(|error| format!("{name}: {error}"))?;
        let features = own.get_ref().get("features");
        let features = features.and_then(|value| value.get_ref().as_table());
        let wanted = dependency.get_ref().as_table();
        let wanted = wanted.and_then(|wanted| wanted.get("features"));
        let wanted = wanted.and_then(|wanted| wanted.get_ref().as_array());
        let wanted = wanted.into_iter().flat_map(|wanted| wanted.iter());
        for feature in wanted.filter_map(|feature| feature.get_ref().as_str()) {
            if !features.is_some_and(|features| features.contains_key(feature)) {
                return Err(format!("{name} has no feature {feature}"));
            }
        }
    }
    Ok(())
}

fn read_toml(block: &Block) -> Result<(), String> {
    let table = DeTable::parse(&block.text).map_err(|error| error.to_string())?;
    let table = table.get_ref();
    let is_manifest = |name: &str| {
        [
            "dependencies",
            "workspace",
            "profile",
            "package",
            "features",
        ]
        .contains(&name)
            || name.starts_with("ratelimit-")
    };
    if table.keys().any(|name| is_manifest(name.get_ref())) {
        read_manifest(table)
    } else {
        read_policies(&block.text, Format::Toml, "toml")
    }
}

fn read_yaml(block: &Block) -> Result<(), String> {
    for event in Parser::new_from_str(&block.text) {
        event.map_err(|error| error.to_string())?;
    }
    let has = |member: &str| block.text.lines().any(|line| line.starts_with(member));
    if has("domain:") && has("descriptors:") {
        let found = RulesBuilder::new().add_yaml(&block.text);
        return if found.is_empty() {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        };
    }
    if has("policy:") {
        read_policies(&block.text, Format::Yaml, "yaml")
    } else {
        Ok(())
    }
}

#[test]
fn every_toml_block_is_a_policy_file_or_a_manifest() {
    assert!(read_all("toml", read_toml) >= 20);
}

#[test]
fn every_yaml_block_is_read() {
    assert!(read_all("yaml", read_yaml) >= 5);
}

#[test]
fn every_json_block_is_read() {
    let read = |block: &Block| {
        let values = serde_json::Deserializer::from_str(&block.text).into_iter();
        let values = values.collect::<Result<Vec<serde_json::Value>, _>>();
        values.map(drop).map_err(|error| error.to_string())
    };

    assert!(read_all("json", read) >= 3);
}

#[test]
fn every_limit_block_is_read() {
    let read = |block: &Block| {
        for line in block.text.lines() {
            Policy::parse("page", line).map_err(|error| format!("{line}: {error}"))?;
        }
        Ok(())
    };

    assert!(read_all("limit", read) >= 8);
}

#[test]
fn a_wrong_block_is_found() {
    let block = |text: &str| Block {
        text: text.to_owned(),
        ..Block::default()
    };
    let redis = "ratelimit-axum = { version = \"0.1\", features = [\"redis\"] }";

    assert_eq!(read_toml(&block(redis)), Ok(()));
    for wrong in [
        redis.replace("redis", "rediss"),
        redis.replace("axum", "axon"),
        "[policy]\nlogin = \"5/minn\"".to_owned(),
        "no toml".to_owned(),
    ] {
        assert!(read_toml(&block(&wrong)).is_err(), "{wrong}");
    }
    for wrong in [
        "policy:\n  login: 5/minn\n",
        "a: [b",
        "domain: edge\ndescriptors:\n  - kay: a\n",
    ] {
        assert!(read_yaml(&block(wrong)).is_err(), "{wrong}");
    }
}

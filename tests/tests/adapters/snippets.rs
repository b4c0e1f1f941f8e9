//! How many lines a newcomer writes, and the parts of programs that pages show.

use std::{fs, path::Path};

const README: &str = include_str!("../../../README.md");
const AXUM: &str = include_str!("../../../docs/start/axum.md");
const ACTIX: &str = include_str!("../../../docs/start/actix.md");
const TOWER: &str = include_str!("../../../docs/start/tower.md");

const PLAIN_AXUM: &str = r#"
use axum::{Router, routing::get};
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = Router::new()
        .route("/", get(async || "hello"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app).await?;
    Ok(())
}
"#;

const PLAIN_ACTIX: &str = r#"
use actix_web::{App, HttpServer, web};
#[actix_web::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = HttpServer::new(move || {
        App::new()
            .route("/", web::get().to(async || "hello"))
    });
    server.bind(("127.0.0.1", 3000))?.run().await?;
    Ok(())
}
"#;

/// The first Rust block below a heading.
fn block<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, below) = page.split_once(heading).expect("the heading");
    let (_, block) = below.split_once("```rust").expect("a block");
    let (block, _) = block.split_once("```").expect("its end");
    block.split_once('\n').expect("its first line").1
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(|line| line.trim().trim_end_matches(';'));
    lines.filter(|line| !line.is_empty())
}

/// The lines that a program without limits does not have.
fn added(page: &str, heading: &str, plain: &str) -> usize {
    let plain: Vec<&str> = lines(plain).collect();
    let written = lines(block(page, heading));
    written.filter(|line| !plain.contains(line)).count()
}

#[test]
fn a_limit_in_memory_takes_four_lines_at_the_most() {
    assert_eq!(added(README, "# ratelimit", PLAIN_AXUM), 4);
    assert_eq!(added(README, "## actix-web", PLAIN_ACTIX), 3);
    assert_eq!(added(AXUM, "## In memory", PLAIN_AXUM), 4);
    assert_eq!(added(ACTIX, "## In memory", PLAIN_ACTIX), 3);
}

#[test]
fn a_limit_in_redis_takes_six_lines_at_the_most() {
    assert_eq!(added(AXUM, "## With Redis", PLAIN_AXUM), 6);
    assert_eq!(added(ACTIX, "## With Redis", PLAIN_ACTIX), 4);
}

#[test]
fn a_handler_takes_one_line() {
    for page in [README, AXUM, ACTIX] {
        let ours = lines(block(page, "# One handler")).filter(|line| line.contains("rate_limit"));
        assert_eq!(ours.filter(|line| !line.starts_with("use ")).count(), 1);
    }
}

/// The lines of a text without the indentation that they have in common with the first.
fn dedented(text: &str) -> Vec<String> {
    let first = text.lines().next().unwrap_or_default();
    let indent = first.len() - first.trim_start().len();
    let line = |line: &str| line.get(indent..).unwrap_or(line.trim_start()).to_owned();
    text.lines().map(line).collect()
}

#[test]
fn parts_of_examples_are_what_the_examples_have() {
    let parts: Vec<&str> = TOWER.split("<!-- untested: a part of ").skip(1).collect();
    assert_eq!(parts.len(), 5);

    for part in parts {
        let (path, rest) = part.split_once(',').expect("a path");
        let (_, block) = rest.split_once("```rust,ignore\n").expect("a block");
        let (block, _) = block.split_once("```").expect("its end");
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let example = fs::read_to_string(root.join(path)).expect("the example");

        let shown = dedented(block);
        let first = shown[0].trim();
        let starts = example.match_indices(first);
        let is_there = starts.into_iter().any(|(at, _)| {
            let start = example[..at].rfind('\n').map_or(0, |end| end + 1);
            dedented(&example[start..]).starts_with(&shown)
        });
        assert!(is_there, "{path} has no\n{block}");
    }
}

//! Makes programs of the snippets that serve for ever, so that doctests run them and not only compile them.
//!
//! A page shows a program as a user writes it, with `no_run`. What is made of it here differs in its
//! addresses alone: `ratelimit_tests::snippet` gives them, visits the server, and ends the program.

use std::{env, error::Error, fmt::Write as _, fs, path::Path};

const PAGES: [&str; 5] = [
    "README.md",
    "crates/ratelimit-actix/README.md",
    "crates/ratelimit-axum/README.md",
    "docs/start/actix.md",
    "docs/start/axum.md",
];
const FENCE: &str = "```rust,no_run\n";
const REDIS: &str = "\"redis://127.0.0.1:6379\"";
const ADDRESSES: [&str; 2] = ["\"127.0.0.1:3000\"", "(\"127.0.0.1\", 3000)"];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("..");
    let mut programs = String::new();
    for page in PAGES {
        let path = root.join(page);
        println!("cargo::rerun-if-changed={}", path.display());
        for snippet in snippets(&fs::read_to_string(path)?) {
            let program = with_addresses(snippet).ok_or_else(|| unchanged(page, snippet))?;
            for program in with_and_without_redis(&program) {
                write!(programs, "```rust,standalone_crate\n{program}```\n\n")?;
            }
        }
    }
    let readme = fs::read_to_string(root.join("README.md"))?;
    write!(programs, "{}", policies(&readme)?)?;
    let out = Path::new(&env::var("OUT_DIR")?).join("snippets.md");
    Ok(fs::write(out, programs)?)
}

/// The blocks of a page that are not run where they stand.
fn snippets(page: &str) -> impl Iterator<Item = &str> {
    let blocks = page.split(FENCE).skip(1);
    blocks.filter_map(|block| block.split_once("```\n").map(|(snippet, _)| snippet))
}

/// A program with the cells of the table of policies that are Rust.
fn policies(readme: &str) -> Result<String, Box<dyn Error>> {
    let (_, table) = readme
        .split_once("| you want | policy file | Rust |\n")
        .ok_or("the README has no table of policies")?;
    let rows = table.lines().skip(1).take_while(|row| row.starts_with('|'));
    let cells = rows.filter_map(|row| row.split(" | ").nth(2));
    let cells = cells.map(|cell| cell.trim_matches([' ', '|', '`']));
    let mut program = String::from("```rust\nuse ratelimit_axum::*;\n\n");
    for cell in cells {
        let policy = "let policy = Policy::parse(\"api\", \"10/min\")?;";
        writeln!(program, "{{\n    {policy}\n    let _ = {cell};\n}}")?;
    }
    Ok(program + "# Ok::<(), Box<dyn std::error::Error>>(())\n```\n")
}

fn with_addresses(snippet: &str) -> Option<String> {
    let address = ADDRESSES
        .into_iter()
        .find(|address| snippet.contains(address))?;
    Some(snippet.replace(address, "ratelimit_tests::snippet::address()"))
}

/// A program with Redis serves without it as well.
fn with_and_without_redis(program: &str) -> Vec<String> {
    if !program.contains(REDIS) {
        return vec![program.to_owned()];
    }
    ["redis", "no_redis"]
        .map(|given| program.replace(REDIS, &format!("&ratelimit_tests::snippet::{given}()")))
        .into()
}

fn unchanged(page: &str, snippet: &str) -> String {
    format!(
        "a snippet of {page} is not run, because it listens on none of {ADDRESSES:?}:\n{snippet}"
    )
}

//! The page about features and versions, against the manifests.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    check::files,
    failure::Failure,
    workspace::{Package, Workspace},
};

const PAGE: &str = "docs/reference/features.md";
const ADVICE: &str = "write docs/reference/features.md as the Cargo.toml files have it";

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let page = files::read(&workspace.root.join(PAGE))?;
    let published: Vec<&Package> = workspace.published().collect();
    Failure::unless_none(problems(&page, &published), ADVICE)
}

fn problems(page: &str, published: &[&Package]) -> Vec<String> {
    let mut problems = Vec::new();
    for package in published {
        let heading = format!("\n### {}\n", package.name);
        let Some((_, section)) = page.split_once(&heading) else {
            problems.push(format!("{} has no section", package.name));
            continue;
        };
        let section = section.split("\n#").next().unwrap_or_default();
        problems.extend(feature_problems(
            package,
            &features_on_page(section),
            &features(package),
        ));
        for version in [&package.version, &rust_version(package)] {
            let sentence = page.split("\n## Versions\n").nth(1).unwrap_or_default();
            if !has_word(sentence, version) {
                problems.push(format!("{} has {version}, the page not", package.name));
            }
        }
    }
    problems.extend(dependency_problems(page, published));
    problems
}

/// Whether each feature is a default.
type Features = BTreeMap<String, bool>;

fn features(package: &Package) -> Features {
    let defaults = package.features.get("default");
    let is_default = |name: &String| defaults.is_some_and(|names| names.contains(name));
    let names = package.features.keys().filter(|name| *name != "default");
    names.map(|name| (name.clone(), is_default(name))).collect()
}

/// Rows such as `| `redis` | no | ... |`.
fn features_on_page(section: &str) -> Features {
    let rows = section.lines().filter_map(|line| {
        let mut cells = cells(line);
        let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        Some((name.to_owned(), cells.next()? == "yes"))
    });
    rows.collect()
}

fn feature_problems(package: &Package, page: &Features, manifest: &Features) -> Vec<String> {
    let names: BTreeSet<&String> = page.keys().chain(manifest.keys()).collect();
    let problem = |name: &String| match (page.get(name), manifest.get(name)) {
        (None, _) => Some("is not on the page"),
        (_, None) => Some("is on the page only"),
        (Some(page), Some(manifest)) if page != manifest => Some("is a default or not"),
        _ => None,
    };
    let problem = |name: &String| Some(format!("{}/{name} {}", package.name, problem(name)?));
    names.into_iter().filter_map(problem).collect()
}

/// Rows such as `| `axum` | 0.8 | `ratelimit-axum` |`, against the requirement of each named crate.
fn dependency_problems(page: &str, published: &[&Package]) -> Vec<String> {
    let table = page.split("\n| crate | version |").nth(1);
    let table = table.and_then(|table| table.split("\n\n").next());
    let mut problems = Vec::new();
    for row in table.unwrap_or_default().lines().skip(2) {
        let row: Vec<&str> = cells(row).collect();
        let [name, version, users] = row[..] else {
            problems.push(format!("three cells are expected in {row:?}"));
            continue;
        };
        let name = name.trim_matches('`');
        for user in users.split(", ").map(|user| user.trim_matches('`')) {
            let package = published.iter().find(|package| package.name == user);
            let found = package.and_then(|package| package.requirement(name));
            if found != Some(version) {
                problems.push(format!(
                    "{user} asks for {name} {}, the page says {version}",
                    found.unwrap_or("not at all")
                ));
            }
        }
    }
    if table.is_none() {
        problems.push("there is no table of versions".to_owned());
    }
    problems
}

fn cells(row: &str) -> impl Iterator<Item = &str> {
    let row = row.trim().trim_start_matches('|').trim_end_matches('|');
    row.split('|').map(str::trim)
}

fn rust_version(package: &Package) -> String {
    let version = package.fields.rust_version.as_deref();
    format!("Rust {}", version.unwrap_or("without a version"))
}

/// Whether the text has this word and not a longer one: 1.89 is not in 1.899.
fn has_word(text: &str, word: &str) -> bool {
    let mut places = text.match_indices(word);
    places.any(|(at, _)| !text[at + word.len()..].starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package() -> Package {
        let package = json!({
            "id": "a", "name": "a", "version": "0.1.0", "rust_version": "1.89", "targets": [], "publish": null,
            "manifest_path": "Cargo.toml",
            "features": { "default": ["x"], "x": [], "y": [] },
            "dependencies": [{ "name": "axum", "req": "^0.8", "kind": null, "path": null }],
        });
        serde_json::from_value(package).unwrap()
    }

    const GOOD: &str = "# F\n\n### a\n\n| feature | default | adds |\n|---|---|---|\n| `x` | yes | b |\n| `y` | no | c |\n\
        \n## Versions\n\nThe version is 0.1.0, with Rust 1.89.\n\n| crate | version | public in |\n|---|---|---|\n\
        | `axum` | 0.8 | `a` |\n\n## End\n";

    fn found(from: &str, to: &str) -> Vec<String> {
        problems(&GOOD.replace(from, to), &[&package()])
    }

    #[test]
    fn a_true_page_passes() {
        assert_eq!(found("", ""), [""; 0]);
    }

    #[test]
    fn each_difference_is_found() {
        for (from, to, expected) in [
            ("### a\n", "### b\n", "a has no section"),
            ("| `x` | yes | b |\n", "", "a/x is not on the page"),
            ("`y`", "`z`", "a/y is not on the page"),
            ("| `y` | no", "| `y` | yes", "a/y is a default or not"),
            ("0.1.0", "0.2.0", "a has 0.1.0, the page not"),
            ("1.89", "1.899", "a has Rust 1.89, the page not"),
            (
                "| 0.8 |",
                "| 0.7 |",
                "a asks for axum 0.8, the page says 0.7",
            ),
            (
                "`axum`",
                "`http`",
                "a asks for http not at all, the page says 0.8",
            ),
            (
                "| crate | version |",
                "| crate |",
                "there is no table of versions",
            ),
        ] {
            let problems = found(from, to);
            assert_eq!(problems.first().map(String::as_str), Some(expected));
        }
        assert_eq!(found("`y`", "`z`").len(), 2);
    }
}

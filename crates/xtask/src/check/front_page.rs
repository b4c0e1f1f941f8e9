//! The front page of a crate: what `//!` says in its `lib.rs`, and the pages that it includes.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::check::{links, rust_file::RustFile};

/// The parts of the front page that are missing in `lib.rs`: each of its headings has a link at its top, and no
/// heading of the whole page stands there twice, because an anchor leads to the first one.
pub(super) fn problems(lib: &RustFile, copies: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let own = docs(lib);
    let own_anchors = links::anchors(&own);
    let top = own.split("\n# ").next().unwrap_or_default();
    let mut problems = Vec::new();
    if own_anchors.is_empty() {
        problems.push(format!("{}: the front page has no headings", lib.path));
    }
    let is_unlisted = |anchor: &&String| !top.contains(&format!("](#{anchor})"));
    let unlisted = own_anchors.iter().filter(is_unlisted);
    problems.extend(
        unlisted
            .map(|anchor| format!("{}: the top of the page has no link to #{anchor}", lib.path)),
    );

    let mut whole = own;
    for page in included_pages(lib) {
        let path = PathBuf::from("crates").join(&lib.crate_name).join(page);
        whole.push_str(copies.get(&path).map_or("", String::as_str));
    }
    let anchors = links::anchors(&whole);
    let linked = links::links(&whole);
    let linked = linked.iter().filter_map(|(_, link)| link.strip_prefix('#'));
    let dead = linked.filter(|link| !anchors.iter().any(|anchor| anchor == link));
    problems.extend(dead.map(|link| format!("{}: no heading is #{link}", lib.path)));
    let headings = links::lines_outside_fences(&whole).filter(|(_, line)| line.starts_with('#'));
    let headings: Vec<String> = headings
        .map(|(_, line)| links::anchor_of(line.trim_start_matches('#').trim()))
        .collect();
    let twice = (1..headings.len()).filter(|at| headings[..*at].contains(&headings[*at]));
    problems.extend(twice.map(|at| format!("{}: two headings are #{}", lib.path, headings[at])));
    problems
}

/// The pages that a file includes from the folder `docs` of its crate.
pub(super) fn included_pages(file: &RustFile) -> BTreeSet<PathBuf> {
    let depth = file.path.split('/').count() - "crates/a/src".split('/').count();
    let opening = format!("include_str!(\"{}docs/", "../".repeat(depth));
    let rests = file.text.split(&opening).skip(1);
    rests
        .filter_map(|rest| Some(Path::new("docs").join(rest.split_once('"')?.0)))
        .collect()
}

/// The text of the `//!` lines.
fn docs(lib: &RustFile) -> String {
    let lines = lib.text.lines().filter_map(|line| line.strip_prefix("//!"));
    let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
    lines.fold(String::new(), |text, line| text + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, copy: &str) -> Vec<String> {
        let path = PathBuf::from("crates/a/docs/b.md");
        let copies = BTreeMap::from([(path, copy.to_owned())]);
        problems(&RustFile::new("crates/a/src/lib.rs", text), &copies)
    }

    const INCLUDE: &str = "#![doc = include_str!(\"../docs/b.md\")]\n";

    #[test]
    fn a_page_with_its_headings_at_the_top_passes() {
        let text =
            format!("//! A.\n//!\n//! - [B c](#b-c)\n//! - [D](#d)\n//!\n//! # B c\n{INCLUDE}");

        assert_eq!(found(&text, "# D\n[b](#b-c)\n"), [""; 0]);
    }

    #[test]
    fn missing_links_dead_links_and_equal_headings_are_found() {
        assert_eq!(
            found("//! A.\n", ""),
            ["crates/a/src/lib.rs: the front page has no headings"]
        );
        assert_eq!(
            found("//! A.\n//! # B\n", ""),
            ["crates/a/src/lib.rs: the top of the page has no link to #b"]
        );
        let text = format!("//! [B](#b) [C](#c)\n//! # B\n{INCLUDE}");
        assert_eq!(
            found(&text, "# B\n"),
            [
                "crates/a/src/lib.rs: no heading is #c",
                "crates/a/src/lib.rs: two headings are #b",
            ]
        );
    }

    #[test]
    fn pages_are_found_by_the_folder_of_the_crate() {
        let line = "#![doc = include_str!(\"../docs/start/axum.md\")]\n";
        let lib = RustFile::new("crates/a/src/lib.rs", line);
        let deep = RustFile::new("crates/a/src/b/c.rs", line);

        assert_eq!(
            included_pages(&lib),
            BTreeSet::from([PathBuf::from("docs/start/axum.md")])
        );
        assert!(included_pages(&deep).is_empty());
    }
}

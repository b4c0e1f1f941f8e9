//! The list of pages that the book is made of: each page of `docs` is on it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// The list, which readers of the repository do not need.
const SUMMARY: &str = "docs/SUMMARY.md";

/// The pages that the list does not name.
pub(super) fn problems(pages: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let summary = Path::new(SUMMARY);
    let Some(text) = pages.get(summary) else {
        return vec![format!("there is no {SUMMARY}")];
    };
    let links = text.lines().filter_map(|line| line.split_once("]("));
    let listed: BTreeSet<PathBuf> = links
        .map(|(_, link)| Path::new("docs").join(link.trim_end_matches(')')))
        .collect();
    pages
        .keys()
        .filter(|page| page.starts_with("docs") && *page != summary && !listed.contains(*page))
        .map(|page| format!("{} is not in {SUMMARY}", page.display()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let pages = files
            .iter()
            .map(|(path, text)| (PathBuf::from(path), (*text).to_owned()));
        problems(&pages.collect())
    }

    #[test]
    fn a_page_that_is_not_listed_is_found() {
        let summary = "# Summary\n\n- [A](a.md)\n  - [B](b/c.md)\n";
        let listed = [
            ("docs/SUMMARY.md", summary),
            ("docs/a.md", "# A"),
            ("docs/b/c.md", "# B"),
            ("lua/README.md", "# Scripts"),
        ];

        assert_eq!(found(&listed), [""; 0]);
        assert_eq!(
            found(&[listed.as_slice(), &[("docs/b/d.md", "# D")]].concat()),
            ["docs/b/d.md is not in docs/SUMMARY.md"]
        );
        assert_eq!(found(&listed[1..]), ["there is no docs/SUMMARY.md"]);
    }
}

//! Links between pages, and paths of pages in other files: the file exists, and the anchor is one of its headings.

mod anchors;
mod named;
mod rewrite;
mod targets;

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

pub(crate) use self::rewrite::{Rewritten, rewrite};
pub(super) use self::{
    anchors::{anchor_of, anchors, lines_outside_fences},
    targets::links,
};
use crate::{
    check::{files, source, summary},
    failure::Failure,
    workspace::Workspace,
};

const ADVICE: &str = "\
    link to a file that exists, and to a heading as GitHub writes its anchor; list each page in docs/SUMMARY.md";

/// The list of pages for language models, whose links are checked like those of a page.
const LLMS: &str = "docs/llms.txt";

/// The files beside pages that may name one.
const NAMING: [&str; 9] = [
    "rs", "lua", "toml", "yml", "yaml", "mjs", "js", "json", "service",
];

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let root = &workspace.root;
    let relative = |file: &Path| file.strip_prefix(root).unwrap_or(file).to_owned();
    let mut pages = BTreeMap::new();
    for file in files::files(root, "md")? {
        pages.insert(relative(&file), files::read(&file)?);
    }
    let mut problems = summary::problems(&pages);
    pages.insert(PathBuf::from(LLMS), files::read(&root.join(LLMS))?);
    let site = Site {
        pages,
        exists: |path: &Path| root.join(path).exists(),
    };
    problems.extend(site.page_problems());
    for ending in NAMING {
        for file in files::files(root, ending)? {
            let path = relative(&file);
            let text = without_unit_tests(&path, &files::read(&file)?);
            problems.extend(site.file_problems(&path, &text));
        }
    }
    Failure::unless_none(problems, ADVICE)
}

/// The checks name pages that do not exist, in their unit tests.
fn without_unit_tests(path: &Path, text: &str) -> String {
    if !path.starts_with("crates/xtask") || path.extension().is_none_or(|ending| ending != "rs") {
        return text.to_owned();
    }
    let tests = source::test_lines(&source::code(text));
    let lines = text.lines().zip(tests);
    let lines = lines.map(|(line, is_test)| if is_test { "" } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

/// The pages, and what else links can lead to.
struct Site<E> {
    pages: BTreeMap<PathBuf, String>,
    exists: E,
}

impl<E: Fn(&Path) -> bool> Site<E> {
    fn page_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (page, text) in &self.pages {
            for (line, link) in links(text) {
                let Some((path, anchor)) = Self::local(page, &link) else {
                    continue;
                };
                if let Some(problem) = self.problem(&path, &anchor) {
                    problems.push(format!("{}:{line}: {problem}", page.display()));
                }
            }
        }
        problems
    }

    fn file_problems(&self, file: &Path, text: &str) -> Vec<String> {
        let paths = named::paths(text).into_iter();
        let problems = paths.filter_map(|(line, named)| {
            let (path, anchor) = named.split_once('#').unwrap_or((&named, ""));
            let problem = self.problem(Path::new(path), anchor)?;
            Some(format!("{}:{line}: {problem}", file.display()))
        });
        problems.collect()
    }

    /// The path from the top, and the anchor, of a link that leads into this repository.
    fn local(page: &Path, link: &str) -> Option<(PathBuf, String)> {
        let (address, anchor) = link.split_once('#').unwrap_or((link, ""));
        // `crate::Limiter` and `Self::new` are links of rustdoc.
        let is_elsewhere = link.contains("://") || link.contains("::");
        if is_elsewhere || link.starts_with("mailto:") || link.starts_with("data:") {
            return None;
        }
        let path = if address.is_empty() {
            page.to_owned()
        } else {
            resolve(page, address)
        };
        Some((path, anchor.to_owned()))
    }

    fn problem(&self, path: &Path, anchor: &str) -> Option<String> {
        if !(self.exists)(path) {
            return Some(format!("there is no {}", path.display()));
        }
        // A folder shows its README.
        let readme = path.join("README.md");
        let text = self.pages.get(path).or_else(|| self.pages.get(&readme))?;
        let has_anchor = anchor.is_empty() || anchors(text).iter().any(|heading| heading == anchor);
        (!has_anchor).then(|| format!("{} has no #{anchor}", path.display()))
    }
}

/// The path of a link that stands on a page, from the top of the repository.
pub(crate) fn resolve(page: &Path, link: &str) -> PathBuf {
    let mut target = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(target.pop()),
            Component::Normal(name) => target.push(name),
            _ => {}
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(text: &str) -> Site<impl Fn(&Path) -> bool> {
        let pages = BTreeMap::from([
            (PathBuf::from("docs/a.md"), text.to_owned()),
            (
                PathBuf::from("docs/b/c.md"),
                "# The `Key` type\n## Two, words\n## Two, words\n".to_owned(),
            ),
            (PathBuf::from("lua/README.md"), "# Scripts\n".to_owned()),
        ]);
        let files = ["docs/a.md", "docs/b/c.md", "lua", "lua/x.lua", "docs/x.png"];
        Site {
            pages,
            exists: move |path: &Path| files.iter().any(|file| path == Path::new(file)),
        }
    }

    fn found(text: &str) -> Vec<String> {
        site(text).page_problems()
    }

    #[test]
    fn good_links_pass() {
        let text = "# Top\n[a](#top) [b](b/c.md#the-key-type) [c](b/c.md#two-words-1)\n\
            [d](../lua/x.lua) [e](https://example.org/#x) [h](../lua#scripts) <img src=\"x.png\">\n\
            \n\
            [f]: b/c.md\n`[g](no.md)`";

        assert_eq!(found(text), [""; 0]);
    }

    #[test]
    fn a_missing_file_or_anchor_is_found() {
        assert_eq!(found("[a](no.md)"), ["docs/a.md:1: there is no docs/no.md"]);
        assert_eq!(
            found("\n[a](b/c.md#no)"),
            ["docs/a.md:2: docs/b/c.md has no #no"]
        );
        assert_eq!(found("[a](#no)"), ["docs/a.md:1: docs/a.md has no #no"]);
        assert_eq!(found("[a](../lua#no)"), ["docs/a.md:1: lua has no #no"]);
        assert_eq!(found("<a href=\"no.md\"><img src=\"no.png\"></a>").len(), 2);
    }

    #[test]
    fn a_path_of_a_page_in_a_source_exists() {
        let problems = |text: &str| site("").file_problems(Path::new("x.rs"), text);

        assert_eq!(problems("// see docs/b/c.md#two-words"), [""; 0]);
        assert_eq!(
            problems("\n\"see docs/no.md\""),
            ["x.rs:2: there is no docs/no.md"]
        );
        assert_eq!(problems("// docs/b/c.md#no").len(), 1);
    }
}

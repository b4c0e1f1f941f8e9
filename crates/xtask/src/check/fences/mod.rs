//! Code blocks of pages: each has a language, and a test that reads it or a reason why none does.

mod command;
mod fence;
mod language;
mod test_names;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use self::{
    command::Commands,
    fence::{Blocks, Fence},
    language::Testing,
};
use crate::{
    check::{files, pages},
    failure::Failure,
    workspace::Workspace,
};

const ADVICE: &str = "docs/CONTRIBUTING.md#code-blocks says how each block is tested";

/// The program that runs the blocks with `no_run`.
const RUNNER: &str = "tests/build.rs";

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let root = &workspace.root;
    let sources = Sources::load(root)?;
    let commands = Commands::load(workspace)?;
    let mut problems = Vec::new();
    let mut counts: BTreeMap<Testing, usize> = BTreeMap::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for file in files::files(root, "md")? {
        let path = file.strip_prefix(root).unwrap_or(&file).to_string_lossy();
        // The step `pages` compares copies with their pages.
        if pages::is_copy(&path) {
            continue;
        }
        let page = files::read(&file)?;
        let blocks = Blocks::of(&page);
        let at = |line: usize, problem: String| format!("{path}:{line}: {problem}");
        for line in blocks.indented {
            problems.push(at(line, "indented code: write a fence".to_owned()));
        }
        for fence in blocks.fenced {
            match sources.testing(&path, &fence) {
                Ok(testing) => {
                    *counts.entry(testing).or_default() += 1;
                    let reason = fence.reason.filter(|_| testing == Testing::Untested);
                    if let Some(reason) = reason {
                        *reasons.entry(reason).or_default() += 1;
                    }
                }
                Err(problem) => problems.push(at(fence.line, problem)),
            }
        }
        let found = commands.problems(&page);
        problems.extend(found.into_iter().map(|(line, problem)| at(line, problem)));
    }
    for (testing, name) in Testing::ALL {
        let count = counts.get(&testing).copied().unwrap_or_default();
        println!("    {count:4} {name}");
    }
    for (reason, count) in reasons {
        println!("         {count:4} {reason}");
    }
    Failure::unless_none(problems, ADVICE)
}

/// The Rust sources, as far as they name pages.
#[derive(Debug, Default)]
struct Sources {
    /// Pages that `doc = include_str!` makes doctests.
    doctests: BTreeSet<PathBuf>,
    /// The text of each folder.
    folders: BTreeMap<PathBuf, String>,
    runner: String,
}

impl Sources {
    fn load(root: &Path) -> Result<Sources, Failure> {
        let mut sources = Sources::default();
        for file in files::files(root, "rs")? {
            let path = file.strip_prefix(root).unwrap_or(&file);
            if path.starts_with("crates/xtask/src/check/fences") {
                continue;
            }
            sources.add(path, &files::read(&file)?);
        }
        Ok(sources)
    }

    fn add(&mut self, path: &Path, text: &str) {
        let folder = path.parent().unwrap_or(Path::new(""));
        for (_, rest) in text
            .match_indices("doc = include_str!(\"")
            .map(|(at, found)| (at, &text[at + found.len()..]))
        {
            let page = rest.split('"').next().unwrap_or_default();
            self.doctests.insert(page_path(folder, page));
        }
        if path == Path::new(RUNNER) {
            text.clone_into(&mut self.runner);
        }
        *self.folders.entry(folder.to_owned()).or_default() += text;
    }

    /// How a block of a page is tested, or why it is not.
    fn testing(&self, page: &str, fence: &Fence) -> Result<Testing, String> {
        let testing = language::testing(fence)?;
        match testing {
            Testing::Compiled if !self.doctests.contains(Path::new(page)) => Err(format!(
                "no doctest includes the page: add it to tests/src/pages.rs ({page})"
            )),
            Testing::Compiled
                if fence.has("no_run") && !self.runner.contains(&format!("\"{page}\"")) =>
            {
                Err(format!("`no_run`, and {RUNNER} does not run the page"))
            }
            Testing::TakenByATest if !self.takes(page, &fence.language) => Err(format!(
                "no test that names {page} takes `{}` from it",
                fence.language
            )),
            Testing::Typed if command::is_checked(&fence.text) => Ok(Testing::Checked),
            _ => Ok(testing),
        }
    }

    /// Whether the sources of one folder name the page and the language.
    ///
    /// - The page is the end of a string. Or the folder of the page is one, and a string is the name of the page without
    ///   its extension, or `"md"`, with which a test finds all pages of the folder.
    /// - The language is a string, or stands behind backticks in one.
    fn takes(&self, page: &str, language: &str) -> bool {
        let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
        let stem = Path::new(page).file_stem().unwrap_or_default();
        let stem = stem.to_string_lossy();
        let mut texts = self.folders.values();
        texts.any(|text| {
            let is_string = |string: &str| text.contains(&format!("\"{string}\""));
            let ends_string = |path: &str| is_string(path) || text.contains(&format!("/{path}\""));
            let names_page = ends_string(page)
                || (!folder.is_empty()
                    && ends_string(folder)
                    && (is_string(&stem) || is_string("md")));
            let has_fence = |end| text.contains(&format!("```{language}{end}"));
            names_page && (is_string(language) || has_fence('"') || has_fence('\\'))
        })
    }
}

/// The page that a source in `folder` includes. For a copy in the folder `docs` of a crate it is the original.
fn page_path(folder: &Path, included: &str) -> PathBuf {
    let rest = included.trim_start_matches("../");
    if rest.starts_with("docs/") || !included.starts_with("../") {
        return PathBuf::from(rest);
    }
    let up = (included.len() - rest.len()) / 3;
    let base = folder.ancestors().nth(up).unwrap_or(Path::new(""));
    base.join(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(page: &str, block: &str) -> Option<String> {
        let mut sources = Sources::default();
        sources.add(
            Path::new("tests/src/pages.rs"),
            "#[doc = include_str!(\"../../docs/a.md\")] include_str!(\"../docs/proxy.md\") \
             \"nginx\" \"```caddy\\n\" login \"logs\"",
        );
        sources.add(Path::new(RUNNER), "[\"docs/a.md\"]");
        let fence = Blocks::of(block).fenced.remove(0);
        sources.testing(page, &fence).err()
    }

    #[test]
    fn a_block_has_a_known_language() {
        assert!(problem("docs/a.md", "```\na\n```").is_some());
        assert!(problem("docs/a.md", "```cobol\na\n```").is_some());
        assert_eq!(problem("docs/a.md", "```text\na\n```"), None);
    }

    #[test]
    fn an_untested_block_has_a_reason() {
        let reason = "<!-- untested: needs a cluster -->\n";

        assert!(problem("docs/a.md", "```sh untested\na\n```").is_some());
        assert!(problem("docs/a.md", "```rust,ignore\na\n```").is_some());
        assert!(problem("docs/a.md", &format!("{reason}```sh\na\n```")).is_some());
        assert!(problem("docs/a.md", "<!-- untested: -->\n```sh untested\n```").is_some());
        assert_eq!(
            problem("docs/a.md", &format!("{reason}```sh untested\na\n```")),
            None
        );
    }

    #[test]
    fn rust_is_a_doctest_and_run() {
        assert_eq!(problem("docs/a.md", "```rust\na\n```"), None);
        assert_eq!(problem("docs/a.md", "```rust,no_run\na\n```"), None);
        assert!(problem("docs/b.md", "```rust\na\n```").is_some());

        let mut sources = Sources::default();
        sources.add(
            Path::new("tests/src/pages.rs"),
            "#[doc = include_str!(\"../../docs/a.md\")]",
        );
        let fence = Blocks::of("```rust,no_run\na\n```").fenced.remove(0);
        assert!(sources.testing("docs/a.md", &fence).is_err());
    }

    #[test]
    fn a_configuration_is_taken_by_a_test_of_its_page() {
        assert_eq!(problem("docs/proxy.md", "```nginx\na\n```"), None);
        assert_eq!(problem("docs/proxy.md", "```caddy\na\n```"), None);
        assert!(problem("docs/proxy.md", "```haproxy\na\n```").is_some());
        assert!(problem("docs/proxy.md", "```log\na\n```").is_some());
        assert!(problem("docs/a/docs/proxy.md", "```nginx\na\n```").is_some());
        assert!(problem("docs/b.md", "```nginx\na\n```").is_some());
    }

    #[test]
    fn a_folder_is_not_each_page_of_it() {
        let takes = |text: &str, page: &str| {
            let mut sources = Sources::default();
            sources.add(Path::new("tests/a.rs"), text);
            sources.takes(page, "log")
        };
        let by_name = "open(\"../docs/guides\", \"tiers\").first(\"log\")";
        let all = "files(\"docs/guides\", \"md\").split(\"```log\\n\")";

        assert!(takes(by_name, "docs/guides/tiers.md"));
        assert!(!takes(by_name, "docs/guides/login.md"));
        assert!(takes(all, "docs/guides/login.md"));
        assert!(!takes(all, "docs/operate/login.md"));
    }

    #[test]
    fn an_included_page_is_found_through_the_copy_of_a_crate() {
        let folder = Path::new("crates/ratelimit-axum/src");

        assert_eq!(
            page_path(folder, "../docs/start/axum.md"),
            Path::new("docs/start/axum.md")
        );
        assert_eq!(
            page_path(folder, "../README.md"),
            Path::new("crates/ratelimit-axum/README.md")
        );
        assert_eq!(
            page_path(Path::new("tests/src"), "../../README.md"),
            Path::new("README.md")
        );
    }
}

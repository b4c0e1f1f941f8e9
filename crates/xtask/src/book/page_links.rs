//! Links of a page that the book has no file for: those out of `docs`, and those to a `README.md`.

use std::path::{Component, Path, PathBuf};

use super::rewrite::{self, Rewritten};

/// A page for the book.
///
/// - Links to files outside of `docs` become plain text.
/// - mdBook makes an `index.html` of each `README.md`, and does not change links to it.
pub(super) fn rewrite(page: &Path, text: &str) -> String {
    rewrite::rewrite(text, |link| {
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        if path.is_empty() || link.contains("://") {
            return Rewritten::Unchanged;
        }
        if !resolve(page, path).starts_with("docs") {
            return Rewritten::Text;
        }
        let hash = if anchor.is_empty() { "" } else { "#" };
        match path.strip_suffix("README.md") {
            Some(folder) => Rewritten::Target(format!("{folder}index.md{hash}{anchor}")),
            None => Rewritten::Unchanged,
        }
    })
}

/// The path of a link that stands on a page, from the top of the repository.
fn resolve(page: &Path, link: &str) -> PathBuf {
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

    fn rewritten(text: &str) -> String {
        rewrite(Path::new("docs/start/a.md"), text)
    }

    #[test]
    fn links_out_of_the_pages_become_text() {
        let text = "[`a`](../../lua/x.lua), ![b](../../README.md#two) [c](../../examples) `d`\n";

        assert_eq!(rewritten(text), "`a`, b c `d`\n");
    }

    #[test]
    fn a_readme_is_an_index() {
        assert_eq!(
            rewritten("[a](../README.md) [b](README.md#c)\n"),
            "[a](../index.md) [b](index.md#c)\n"
        );
    }

    #[test]
    fn links_between_pages_and_code_stay() {
        for text in [
            "[`a`](../b.md#c) [d](#e) [f](https://g/../h)\n",
            "`[a](../../lua/x.lua)`\n",
            "```text\n[a](../../lua/x.lua)\n```\n[b](c.md)\n",
        ] {
            assert_eq!(rewritten(text), text);
        }
    }
}

//! Links of a page that the book has no file for: those out of `docs`, and those to a `README.md`.

use std::path::Path;

use crate::check::links;

/// A page for the book.
///
/// - Links to files outside of `docs` lead to the repository's address.
/// - mdBook makes an `index.html` of each `README.md`, and does not change links to it.
pub(super) fn rewrite(
    page: &Path,
    text: &str,
    repository: &str,
    is_folder: impl Fn(&Path) -> bool,
) -> String {
    let address = |link: &str| {
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = links::resolve(page, path);
        if path.is_empty() || link.contains("://") {
            return None;
        }
        let hash = if anchor.is_empty() { "" } else { "#" };
        if target.starts_with("docs") {
            let folder = path.strip_suffix("README.md")?;
            return Some(format!("{folder}index.md{hash}{anchor}"));
        }
        let kind = if is_folder(&target) { "tree" } else { "blob" };
        Some(format!(
            "{repository}/{kind}/main/{}{hash}{anchor}",
            target.display()
        ))
    };
    links::rewrite(text, |link, _| address(link))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> String {
        let is_folder = |path: &Path| path == Path::new("examples");
        rewrite(Path::new("docs/start/a.md"), text, "https://r", is_folder)
    }

    #[test]
    fn links_out_of_the_pages_lead_to_the_repository() {
        let text = "[a](../../lua/x.lua), [b](../../README.md#two) [c](../../examples) `d`\n";

        assert_eq!(
            rewritten(text),
            "[a](https://r/blob/main/lua/x.lua), [b](https://r/blob/main/README.md#two) \
             [c](https://r/tree/main/examples) `d`\n"
        );
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

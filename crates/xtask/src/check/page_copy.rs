//! Copies of pages for rustdoc: links lead to the repository, because docs.rs has no other page.

use std::path::Path;

use crate::check::links;

/// The section that says which commands test a page; a reader of docs.rs has no checkout.
const TEST_SECTION: &str = "## How this page is tested";

/// The marks of boxes on GitHub, and their plain form.
const BOXES: [(&str, &str); 3] = [
    ("> [!NOTE]", "> **Note:**"),
    ("> [!TIP]", "> **Tip:**"),
    ("> [!WARNING]", "> **Warning:**"),
];

/// The copy of the page at `path`, from the top of the repository at `repository`.
///
/// - A list of links to the headings follows the title.
/// - A relative link becomes one to the branch `main` of the repository.
/// - The section about tests is left out.
pub(super) fn copy(path: &Path, text: &str, repository: &str) -> String {
    let text = without_test_section(text);
    let (title, body) = text.split_once('\n').unwrap_or((&text, ""));
    let mut copy = format!(
        "<!-- Written from {} by `cargo xtask check --write pages`. -->\n{title}\n",
        path.display()
    );
    let sections = sections(body);
    if !sections.is_empty() {
        copy.push('\n');
    }
    for section in sections {
        copy.extend(["- [", section, "](#", &links::anchor_of(section), ")\n"]);
    }
    let mut is_fenced = false;
    for line in body.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        if is_fenced || is_fence {
            copy.push_str(line);
        } else {
            copy.push_str(&rewritten(line, path, repository));
        }
        copy.push('\n');
    }
    copy
}

fn without_test_section(text: &str) -> String {
    let Some((before, section)) = text.split_once(TEST_SECTION) else {
        return text.to_owned();
    };
    let after = section.find("\n## ").map_or("", |at| &section[at + 1..]);
    format!("{}\n{after}", before.trim_end())
}

/// The headings of the second level.
fn sections(body: &str) -> Vec<&str> {
    let lines = links::lines_outside_fences(body);
    lines
        .filter_map(|(_, line)| line.strip_prefix("## "))
        .collect()
}

/// A line of prose with links that lead to the repository.
fn rewritten(line: &str, page: &Path, repository: &str) -> String {
    if let Some((_, plain)) = BOXES.iter().find(|(mark, _)| line == *mark) {
        return (*plain).to_owned();
    }
    if let Some((name, target)) = line.split_once("]: ")
        && name.starts_with('[')
        && !target.contains(' ')
    {
        return format!("{name}]: {}", absolute(target, page, repository, false));
    }
    // Parts with an odd index are code.
    let parts = line.split('`').enumerate().map(|(index, part)| {
        if index % 2 == 1 {
            part.to_owned()
        } else {
            with_absolute_links(part, page, repository)
        }
    });
    parts.collect::<Vec<_>>().join("`")
}

fn with_absolute_links(prose: &str, page: &Path, repository: &str) -> String {
    let mut text = String::new();
    let mut rest = prose;
    while let Some((before, after)) = rest.split_once("](") {
        let end = after.find([')', ' ']).unwrap_or(after.len());
        let is_image = before
            .rfind('[')
            .is_some_and(|at| before[..at].ends_with('!'));
        text.push_str(before);
        text.push_str("](");
        text.push_str(&absolute(&after[..end], page, repository, is_image));
        rest = &after[end..];
    }
    text + rest
}

/// Anchors of the same page, addresses and paths of rustdoc stay as they are.
fn absolute(target: &str, page: &Path, repository: &str, is_image: bool) -> String {
    if target.starts_with('#') || target.contains("://") || target.contains("::") {
        return target.to_owned();
    }
    let (path, anchor) = target.split_at(target.find('#').unwrap_or(target.len()));
    let file = links::resolve(page, path);
    let kind = if is_image { "raw" } else { "blob" };
    format!("{repository}/{kind}/main/{}{anchor}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> String {
        let copy = copy(
            Path::new("docs/start/axum.md"),
            &format!("# axum\n{text}"),
            "https://a.b/c",
        );
        let (_, body) = copy.split_once("# axum\n").unwrap();
        body.to_owned()
    }

    #[test]
    fn relative_links_lead_to_the_repository() {
        let links = "[a](../guides/b.md#c), `[d](e.md)` and ![f](../g.svg \"h\")\n[i]: j.md\n";

        assert_eq!(
            body(links),
            "[a](https://a.b/c/blob/main/docs/guides/b.md#c), `[d](e.md)` and \
             ![f](https://a.b/c/raw/main/docs/g.svg \"h\")\n\
             [i]: https://a.b/c/blob/main/docs/start/j.md\n"
        );
    }

    #[test]
    fn other_links_and_code_stay() {
        let text = "[a](#b) [c](https://d.e/f.md) [g](crate::Key)\n```\n[a](b.md)\n```\n";

        assert_eq!(body(text), text);
    }

    #[test]
    fn headings_are_listed_below_the_title() {
        let text = "\n## In memory\n```\n## no\n```\n## `Key`s\n";

        assert_eq!(
            body(text),
            format!("\n- [In memory](#in-memory)\n- [`Key`s](#keys)\n{text}")
        );
    }

    #[test]
    fn boxes_are_plain_and_the_tests_are_left_out() {
        let text = "a\n> [!NOTE]\n> b\n\n## How this page is tested\n\nc\n";

        assert_eq!(body(text), "a\n> **Note:**\n> b\n");
        assert_eq!(
            body(&format!("{text}\n## d\n")),
            "\n- [d](#d)\na\n> **Note:**\n> b\n## d\n"
        );
    }
}

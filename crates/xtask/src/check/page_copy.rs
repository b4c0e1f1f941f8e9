//! Copies of pages for rustdoc: relative links become plain text, because a package has no other page.

use std::path::Path;

use crate::check::links::{self, Rewritten};

/// The section that says which commands test a page; a reader of docs.rs has no checkout.
const TEST_SECTION: &str = "## How this page is tested";

/// The marks of boxes on GitHub, and their plain form.
const BOXES: [(&str, &str); 3] = [
    ("> [!NOTE]", "> **Note:**"),
    ("> [!TIP]", "> **Tip:**"),
    ("> [!WARNING]", "> **Warning:**"),
];

/// The copy of the page at `path`, from the top of the repository.
///
/// - A list of links to the headings follows the title.
/// - A relative link becomes plain text.
/// - The section about tests is left out.
pub(super) fn copy(path: &Path, text: &str) -> String {
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
    let body: String = body.lines().map(|line| plain_box(line) + "\n").collect();
    copy + &links::rewrite(&body, without_relative)
}

/// A line with the plain form of a box.
fn plain_box(line: &str) -> String {
    let plain = BOXES.iter().find(|(mark, _)| line == *mark);
    plain.map_or(line, |(_, plain)| plain).to_owned()
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

/// Anchors of the same page, addresses and paths of rustdoc stay as they are.
fn without_relative(target: &str) -> Rewritten {
    if target.starts_with('#') || target.contains("://") || target.contains("::") {
        Rewritten::Unchanged
    } else {
        Rewritten::Text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> String {
        let copy = copy(Path::new("docs/start/axum.md"), &format!("# axum\n{text}"));
        let (_, body) = copy.split_once("# axum\n").unwrap();
        body.to_owned()
    }

    #[test]
    fn relative_links_become_text() {
        let links = "[a](../guides/b.md#c), `[d](e.md)` and ![f](../g.svg \"h\")\n";

        assert_eq!(body(links), "a, `[d](e.md)` and f\n");
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

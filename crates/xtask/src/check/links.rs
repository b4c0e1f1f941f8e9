//! Links between pages: the file exists, and the anchor is one of its headings.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

use crate::{check::tree, failure::Failure, workspace::Workspace};

const ADVICE: &str = "link to a file that exists, and to a heading as GitHub writes its anchor";

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let root = &workspace.root;
    let mut pages = BTreeMap::new();
    for file in tree::files(root, "md")? {
        let path = file.strip_prefix(root).unwrap_or(&file).to_owned();
        pages.insert(path, tree::read(&file)?);
    }
    let exists = |path: &Path| root.join(path).exists();
    Failure::unless_none(problems(&pages, exists), ADVICE)
}

fn problems(pages: &BTreeMap<PathBuf, String>, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (page, text) in pages {
        for (line, link) in links(text) {
            // `crate::Limiter` and `Self::new` are links of rustdoc.
            if link.contains("://") || link.contains("::") || link.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => page.clone(),
                path => resolve(page, path),
            };
            let place = format!("{}:{line}", page.display());
            if !exists(&target) {
                problems.push(format!("{place}: there is no {}", target.display()));
            } else if let Some(text) = pages.get(&target)
                && !anchor.is_empty()
                && !anchors(text).iter().any(|heading| heading == anchor)
            {
                problems.push(format!("{place}: {} has no #{anchor}", target.display()));
            }
        }
    }
    problems
}

/// The path of a link that stands on a page, from the top of the repository.
pub(super) fn resolve(page: &Path, link: &str) -> PathBuf {
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

/// The targets of `[text](target)` and `[name]: target`, outside code, with their lines.
pub(super) fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in lines_outside_fences(text) {
        if line.starts_with("    ") && !line.trim_start().starts_with(['-', '*', '[']) {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for (at, _) in prose.match_indices("](") {
            let target = &prose[at + 2..];
            if let Some(end) = target.find([')', ' ']) {
                links.push((number, target[..end].to_owned()));
            }
        }
        if let Some((name, target)) = line.split_once("]: ")
            && name.starts_with('[')
            && !target.contains(' ')
        {
            links.push((number, target.trim_matches(['<', '>', '`']).to_owned()));
        }
    }
    links
}

/// The anchors of a page, as GitHub makes them: a heading that is repeated gets a number.
pub(super) fn anchors(text: &str) -> Vec<String> {
    let mut anchors = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (_, line) in lines_outside_fences(text) {
        if let Some((_, rest)) = line
            .split_once("<a id=\"")
            .or(line.split_once("<a name=\""))
        {
            anchors.extend(rest.split('"').next().map(str::to_owned));
        }
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let anchor = anchor_of(heading.trim());
        let count = seen.entry(anchor.clone()).or_default();
        anchors.push(match *count {
            0 => anchor,
            number => format!("{anchor}-{number}"),
        });
        *count += 1;
    }
    anchors
}

pub(super) fn anchor_of(heading: &str) -> String {
    // The address of a link in a heading is not shown.
    let mut shown = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        shown.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    shown.push_str(rest);
    let kept = shown.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c => c.is_alphanumeric().then_some(c),
    });
    kept.flat_map(char::to_lowercase).collect()
}

pub(super) fn lines_outside_fences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let pages = BTreeMap::from([
            (PathBuf::from("docs/a.md"), text.to_owned()),
            (
                PathBuf::from("docs/b/c.md"),
                "# The `Key` type\n## Two, words\n## Two, words\n".to_owned(),
            ),
        ]);
        let files = ["docs/a.md", "docs/b/c.md", "lua/x.lua"];
        problems(&pages, |path| {
            files.iter().any(|file| path == Path::new(file))
        })
    }

    #[test]
    fn good_links_pass() {
        let text = "# Top\n[a](#top) [b](b/c.md#the-key-type) [c](b/c.md#two-words-1)\n\
            [d](../lua/x.lua) [e](https://example.org/#x)\n\n[f]: b/c.md\n`[g](no.md)`";

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
    }
}

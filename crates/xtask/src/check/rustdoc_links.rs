//! Links of the built pages of rustdoc that rustdoc itself does not look at: anchors, and relative links to Markdown.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    check::files,
    failure::Failure,
    workspace::{Package, Workspace},
};

const ADVICE: &str =
    "link to a heading of the page, to an item as [`Key`], or to a page by its whole address";

/// Removes the pages of published crates, of which rustdoc leaves those of items that are gone.
pub(super) fn remove_pages(workspace: &Workspace) -> Result<(), Failure> {
    for package in workspace.published() {
        let folder = folder(workspace, package);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let problem = format!("{} stays: {error}", folder.display());
                return Err(Failure::new(problem, "remove it by hand"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn folder(workspace: &Workspace, package: &Package) -> PathBuf {
    let name = package.name.replace('-', "_");
    workspace.target_directory.join("doc").join(name)
}

/// Looks at the pages of published crates, which `cargo doc` has written.
pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let mut problems = Vec::new();
    for package in workspace.published() {
        for file in files::files(&folder(workspace, package), "html")? {
            let text = fs::read_to_string(&file).unwrap_or_default();
            let path = file.strip_prefix(&workspace.root).unwrap_or(&file);
            problems.extend(self::problems(path, &text));
        }
    }
    Failure::unless_none(problems, ADVICE)
}

fn problems(path: &Path, html: &str) -> Vec<String> {
    let ids: BTreeSet<&str> = values(html, " id=\"").collect();
    let links: BTreeSet<&str> = values(html, " href=\"").collect();
    let is_dead = |link: &&str| {
        if let Some(anchor) = link.strip_prefix('#') {
            return !anchor.is_empty() && !ids.contains(anchor);
        }
        let file = link.split('#').next().unwrap_or_default();
        let is_page = Path::new(file).extension().is_some_and(|end| end == "md");
        is_page && !link.contains("://")
    };
    let dead = links.into_iter().filter(is_dead);
    dead.map(|link| format!("{}: {link} leads nowhere", path.display()))
        .collect()
}

/// The values of an attribute.
fn values<'a>(html: &'a str, opening: &'a str) -> impl Iterator<Item = &'a str> {
    let rests = html.split(opening).skip(1);
    rests.filter_map(|rest| rest.split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(html: &str) -> Vec<String> {
        problems(Path::new("a.html"), html)
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let html = "<h2 id=\"b\"></h2><a href=\"#b\"></a><a href=\"#\"></a><a href=\"https://c.d/e.md#f\"></a>\
            <a class=\"g\" href=\"struct.Key.html\"></a>";

        assert_eq!(found(html), [""; 0]);
    }

    #[test]
    fn a_dead_anchor_and_a_relative_page_are_found() {
        assert_eq!(found("<a href=\"#b\"></a>"), ["a.html: #b leads nowhere"]);
        assert_eq!(
            found("<a href=\"../guides/c.md#d\"></a>"),
            ["a.html: ../guides/c.md#d leads nowhere"]
        );
    }
}

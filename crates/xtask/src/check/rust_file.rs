//! The Rust files of our crates, without their tests.

use std::path::Path;

use crate::{
    check::{files, source},
    failure::Failure,
};

/// A file below `crates/*/src`.
#[derive(Debug)]
pub(super) struct RustFile {
    /// Path from the top of the repository.
    pub(super) path: String,
    /// The crate's folder name: `ratelimit-core`.
    pub(super) crate_name: String,
    /// Lines of the file; the lines of unit tests are empty.
    pub(super) text: String,
}

impl RustFile {
    /// Splits a path below `crates/` into its parts, and removes the unit tests of the text.
    pub(super) fn new(path: &str, text: &str) -> RustFile {
        let crate_name = path.split('/').nth(1).unwrap_or_default().to_owned();
        let tests = source::test_lines(&source::code(text));
        RustFile {
            path: path.to_owned(),
            crate_name,
            text: keep_lines(text, &tests),
        }
    }
}

/// Every file below `crates/*/src`, except files and folders named `tests`.
pub(super) fn load(root: &Path) -> Result<Vec<RustFile>, Failure> {
    let mut files = Vec::new();
    for file in files::files(&root.join("crates"), "rs")? {
        let path = file.strip_prefix(root).unwrap_or(&file).to_string_lossy();
        let mut parts = path.trim_end_matches(".rs").split('/').skip(2);
        if parts.next() == Some("src") && parts.all(|part| part != "tests") {
            files.push(RustFile::new(&path, &files::read(&file)?));
        }
    }
    Ok(files)
}

fn keep_lines(text: &str, tests: &[bool]) -> String {
    let kept = text.lines().zip(tests);
    let kept = kept.map(|(line, is_test)| if *is_test { "" } else { line });
    kept.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_tests_are_removed_and_lines_keep_their_numbers() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {} // d";

        let file = RustFile::new("crates/a/src/b.rs", text);

        assert_eq!(file.text, "fn a() {}\n\n\n\n\nfn c() {} // d");
        assert_eq!(file.crate_name, "a");
    }
}

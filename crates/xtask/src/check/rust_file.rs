//! The Rust files of our crates, without their tests.

use std::path::Path;

use crate::{
    check::{source, tree},
    failure::Failure,
};

/// A file below `crates/*/src`.
#[derive(Debug)]
pub(super) struct RustFile {
    /// Path from the top of the repository.
    pub(super) path: String,
    /// The crate's folder name: `ratelimit-core`.
    pub(super) crate_name: String,
    /// Module path inside the crate: `["store", "redis"]` for `store/redis/mod.rs`.
    pub(super) module: Vec<String>,
    /// Lines of the file; the lines of unit tests are empty.
    pub(super) text: String,
    /// [`text`](Self::text) with comments and literals replaced by spaces.
    pub(super) code: String,
}

impl RustFile {
    /// Splits a path below `crates/` into its parts, and removes the unit tests of the text.
    pub(super) fn new(path: &str, text: &str) -> RustFile {
        let mut parts = path.trim_end_matches(".rs").split('/').skip(1);
        let crate_name = parts.next().unwrap_or_default().to_owned();
        let mut module: Vec<String> = parts.skip(1).map(str::to_owned).collect();
        let is_root = module.len() == 1 && ["lib", "main"].contains(&module[0].as_str());
        if is_root || module.last().is_some_and(|name| name == "mod") {
            module.pop();
        }
        let code = source::code(text);
        let tests = source::test_lines(&code);
        RustFile {
            path: path.to_owned(),
            crate_name,
            module,
            text: keep_lines(text, &tests),
            code: keep_lines(&code, &tests),
        }
    }
}

/// Every file below `crates/*/src`, except files and folders named `tests`.
pub(super) fn load(root: &Path) -> Result<Vec<RustFile>, Failure> {
    let mut files = Vec::new();
    for file in tree::files(&root.join("crates"), "rs")? {
        let path = file.strip_prefix(root).unwrap_or(&file).to_string_lossy();
        let mut parts = path.trim_end_matches(".rs").split('/').skip(2);
        if parts.next() == Some("src") && parts.all(|part| part != "tests") {
            files.push(RustFile::new(&path, &tree::read(&file)?));
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
    fn a_file_knows_its_crate_and_module() {
        let file = |path| RustFile::new(path, "");

        assert_eq!(file("crates/a/src/b/c.rs").crate_name, "a");
        assert_eq!(file("crates/a/src/b/c.rs").module, ["b", "c"]);
        assert_eq!(file("crates/a/src/b/mod.rs").module, ["b"]);
        assert_eq!(file("crates/a/src/lib.rs").module, [""; 0]);
    }

    #[test]
    fn unit_tests_are_removed_and_lines_keep_their_numbers() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {} // d";

        let file = RustFile::new("crates/a/src/b.rs", text);

        assert_eq!(file.text, "fn a() {}\n\n\n\n\nfn c() {} // d");
        assert_eq!(file.code.trim_end(), "fn a() {}\n\n\n\n\nfn c() {}");
    }
}

//! The files: where they are, how long they are, and what is in none of them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{check::source, command::succeeds, failure::Failure, workspace::Workspace};

const TOP: [&str; 10] = [
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "crates",
    "docs",
    "examples",
    "lua",
    "tests",
];

const MAX_LINES: usize = 400;

const FORBIDDEN: [(&str, &str); 3] = [
    ("todo!(", "an open end is an issue, no code"),
    ("unimplemented!(", "an open end is an issue, no code"),
    ("#[ignore", "a test runs, or is not there"),
];

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let root = &workspace.root;
    let mut problems = Vec::new();
    for path in entries(root)? {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !name.starts_with('.') && !TOP.contains(&name.as_str()) && !is_ignored(root, &name) {
            problems.push(format!("`{name}` does not belong at the top"));
        }
    }
    for file in files(root, "rs")? {
        let path = file.strip_prefix(root).unwrap_or(&file);
        let found = file_problems(path, &read(&file)?);
        problems.extend(
            found
                .into_iter()
                .map(|problem| format!("{}: {problem}", path.display())),
        );
    }
    Failure::unless_none(
        problems,
        "move, split by noun, or finish what is named above",
    )
}

fn file_problems(path: &Path, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut folders = path.iter();
    let is_source =
        folders.next() == Some("crates".as_ref()) && folders.nth(1) == Some("src".as_ref());
    let is_test = path.file_stem() == Some("tests".as_ref());
    let lines = source::lines_without_tests(text);
    if is_source && !is_test && lines > MAX_LINES {
        problems.push(format!(
            "{lines} lines without its tests, {MAX_LINES} are the most"
        ));
    }
    for (number, line) in source::code(text).lines().enumerate() {
        let found = FORBIDDEN.iter().filter(|(word, _)| line.contains(word));
        problems
            .extend(found.map(|(word, reason)| format!("line {}: `{word}`: {reason}", number + 1)));
    }
    problems
}

/// The files below a folder whose names end so, without links, hidden and built ones.
pub(super) fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for path in entries(&folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_built = name == "target" || name == "node_modules";
            if path.is_symlink() || name.starts_with('.') || is_built {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

pub(super) fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| unreadable(path, &error))
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(folder).and_then(|entries| {
        entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<Vec<PathBuf>>>()
    });
    entries.map_err(|error| unreadable(folder, &error))
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let problem = format!("{} is unreadable: {error}", path.display());
    Failure::new(problem, "see that it exists, and is text")
}

fn is_ignored(root: &Path, name: &str) -> bool {
    succeeds(
        Command::new("git")
            .current_dir(root)
            .args(["check-ignore", "-q", name]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_found_in_src_only() {
        let text = "\n".repeat(MAX_LINES + 1);

        assert_eq!(
            file_problems(Path::new("crates/a/src/b/c.rs"), &text).len(),
            1
        );
        assert_eq!(
            file_problems(Path::new("crates/a/tests/b.rs"), &text).len(),
            0
        );
        assert_eq!(
            file_problems(Path::new("crates/a/src/b/c.rs"), &text[1..]).len(),
            0
        );
    }

    #[test]
    fn unfinished_code_is_found_but_not_talk_about_it() {
        let path = Path::new("tests/a.rs");

        assert_eq!(file_problems(path, "fn a() { todo!() }").len(), 1);
        assert_eq!(file_problems(path, "#[ignore = \"slow\"]").len(), 1);
        assert_eq!(
            file_problems(path, "// todo!()\nlet a = \"#[ignore\";").len(),
            0
        );
    }
}

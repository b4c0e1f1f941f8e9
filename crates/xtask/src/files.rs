//! Finds and reads the files of the workspace.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::failure::Failure;

/// The files below a folder whose names end so, without links, hidden and built ones.
pub(crate) fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, Failure> {
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

pub(crate) fn read(path: &Path) -> Result<String, Failure> {
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

//! The rule files of a directory.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use ratelimit_http::policy_file::{Diagnostic, DiagnosticCode, Diagnostics, Severity};

use crate::rule::{Rules, RulesBuilder};

/// The maximum size of a file in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// How [`load_directory`] reads a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirectoryOptions {
    /// Whether files and folders whose names begin with a dot are left out.
    pub ignore_dot_files: bool,
    /// Whether several files may have the same domain.
    pub merge_domains: bool,
}

/// The diagnostics of one file, in the order of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileDiagnostics {
    /// The path of the file.
    pub path: PathBuf,
    /// At least one diagnostic.
    pub diagnostics: Vec<Diagnostic>,
}

impl FileDiagnostics {
    /// Whether the file is rejected.
    pub fn has_errors(&self) -> bool {
        let mut severities = self.diagnostics.iter().map(Diagnostic::severity);
        severities.any(|severity| severity == Severity::Error)
    }
}

/// Reads every file of a directory and of its folders, in the order of their names, whatever they end in.
///
/// - Names that begin with two dots are left out: Kubernetes keeps the versions of a mounted `ConfigMap` there.
/// - The rules are complete only if no file [has errors](FileDiagnostics::has_errors).
///
/// # Errors
///
/// The [`io::Error`] of reading the directory or a file.
pub fn load_directory(
    directory: &Path,
    options: DirectoryOptions,
) -> io::Result<(Rules, Vec<FileDiagnostics>)> {
    let mut builder = RulesBuilder::new().merge_domains(options.merge_domains);
    let findings = builder.add_directory(directory, options)?;
    Ok((builder.build(), findings))
}

impl RulesBuilder {
    /// Adds every file of a directory, as [`load_directory`] reads it.
    ///
    /// # Errors
    ///
    /// The [`io::Error`] of reading the directory or a file.
    pub fn add_directory(
        &mut self,
        directory: &Path,
        options: DirectoryOptions,
    ) -> io::Result<Vec<FileDiagnostics>> {
        let mut findings = Vec::new();
        for path in list_files(directory, options)? {
            let diagnostics = add_file(&path, self)?;
            if !diagnostics.is_empty() {
                findings.push(FileDiagnostics { path, diagnostics });
            }
        }
        Ok(findings)
    }
}

/// The files that [`load_directory`] reads, in its order.
///
/// # Errors
///
/// The [`io::Error`] of reading the directory.
pub fn list_files(directory: &Path, options: DirectoryOptions) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    collect_files(directory, options, &mut paths)?;
    Ok(paths)
}

/// Adds the paths of all files below a folder.
fn collect_files(
    folder: &Path,
    options: DirectoryOptions,
    paths: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if name.starts_with(b"..") || (options.ignore_dot_files && name.starts_with(b".")) {
            continue;
        }
        // A folder behind a link is left out, so that a link to a parent does not lead in a circle.
        if entry.file_type()?.is_dir() {
            collect_files(&entry.path(), options, paths)?;
        } else if fs::metadata(entry.path())?.is_file() {
            paths.push(entry.path());
        }
    }
    Ok(())
}

/// Reads one file into the builder.
fn add_file(path: &Path, builder: &mut RulesBuilder) -> io::Result<Vec<Diagnostic>> {
    let mut diagnostics = Diagnostics::new();
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let message = format!("expected a file of at most {MAX_FILE_BYTES} bytes");
        diagnostics.add(DiagnosticCode::TooLarge, 1, message);
        return Ok(diagnostics.sorted());
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(builder.add_yaml(&text)),
        Err(error) => {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = before.split(|byte| *byte == b'\n').count();
            diagnostics.add(DiagnosticCode::NotText, line, "expected UTF-8");
            Ok(diagnostics.sorted())
        }
    }
}

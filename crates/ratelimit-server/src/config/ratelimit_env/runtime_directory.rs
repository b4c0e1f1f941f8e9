//! The directory of the rules from the variables `RUNTIME_...`.

use std::{fs, path::PathBuf};

use super::{Variables, refuse, values::boolean};
use crate::config::invalid::InvalidConfig;

impl<F: Fn(&str) -> Option<String>> Variables<F> {
    /// The directory of the rules.
    ///
    /// # Errors
    ///
    /// With `RUNTIME_WATCH_ROOT`, Envoy's server also reads files beside the directory whose names begin with its name and a
    /// dot, such as `config.yaml` beside `config`. This server does not, so such a file is an error.
    pub(super) fn directory(&self) -> Result<PathBuf, InvalidConfig> {
        let parent = below(
            PathBuf::from(self.or("RUNTIME_ROOT", "/srv/runtime_data/current")),
            &self.or("RUNTIME_SUBDIRECTORY", ""),
        );
        // An empty name is the parent itself, as in the other server.
        let name = self.raw("RUNTIME_APPDIRECTORY");
        let name = name.unwrap_or_else(|| "config".to_owned());
        let is_watching_root = self.parsed("RUNTIME_WATCH_ROOT", boolean)? != Some(false);
        let directory = below(parent.clone(), &name);
        if is_watching_root && !name.is_empty() {
            let prefix = format!("{name}.");
            // A directory that cannot be read is an error when the rules are.
            let entries = fs::read_dir(&parent).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name());
            let mut beside = names.filter(|name| name.to_string_lossy().starts_with(&prefix));
            if let Some(found) = beside.next() {
                let message = format!(
                    "{} has rules for Envoy's rate limit server: move it into {}, or set RUNTIME_WATCH_ROOT=false",
                    parent.join(found).display(),
                    directory.display()
                );
                return Err(refuse("RUNTIME_WATCH_ROOT", message));
            }
        }
        Ok(directory)
    }
}

/// A folder below another. A name that begins with a slash stays below it, as in the other server.
fn below(folder: PathBuf, name: &str) -> PathBuf {
    match name.trim_matches('/') {
        "" => folder,
        name => folder.join(name),
    }
}

//! Log lines about files that cannot be read any more.

use std::{collections::BTreeMap, path::PathBuf};

/// The number of looks after which a file counts as lost. A file that is being replaced is missing for a moment.
const MAX_LOOKS: u32 = 3;

/// Logs watched files that cannot be read: each once, until it can be read again.
#[derive(Debug, Default)]
pub(crate) struct MissingFiles(BTreeMap<PathBuf, u32>);

impl MissingFiles {
    /// Logs the files that are lost, given those that cannot be read now.
    pub(crate) fn log_lost(&mut self, unreadable: &[PathBuf]) {
        for path in self.lost(unreadable) {
            let path = path.display();
            tracing::warn!("{path} cannot be read any more; the server keeps what it read last");
        }
    }

    /// Whether a file is lost at the last look.
    pub(crate) fn has_lost(&self) -> bool {
        self.0.values().any(|looks| *looks >= MAX_LOOKS)
    }

    /// The files that this look finds lost.
    fn lost(&mut self, unreadable: &[PathBuf]) -> Vec<PathBuf> {
        self.0.retain(|path, _| unreadable.contains(path));
        let is_lost = |path: &&PathBuf| {
            let looks = self.0.entry((*path).clone()).or_default();
            *looks = looks.saturating_add(1);
            *looks == MAX_LOOKS
        };
        unreadable.iter().filter(is_lost).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_lost_at_the_third_look_and_once_until_it_is_back() {
        let mut missing = MissingFiles::default();
        let token = [PathBuf::from("token")];
        let mut looks = |unreadable: &[PathBuf], times: usize| {
            let lost = (0..times).map(|_| missing.lost(unreadable).len());
            lost.collect::<Vec<_>>()
        };

        assert_eq!(looks(&token, 2), [0, 0]);
        assert_eq!(looks(&[], 1), [0], "replaced");
        assert_eq!(looks(&token, 5), [0, 0, 1, 0, 0]);
        assert_eq!(looks(&[], 1), [0]);
        assert_eq!(looks(&token, 3), [0, 0, 1]);
        assert!(missing.has_lost());
        missing.lost(&[]);
        assert!(!missing.has_lost());
    }
}

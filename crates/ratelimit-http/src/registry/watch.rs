//! A registry that follows a file.

use std::{
    fmt,
    path::PathBuf,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use crate::{
    metrics,
    policy_file::{PolicyFile, read_bytes},
    registry::{Registry, ReloadError},
};

/// The time between two looks at the file.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The number of looks after which a file counts as lost. A file that is being replaced is missing for a moment.
const MAX_LOOKS: u32 = 3;

impl Registry {
    /// Replaces all policies by those of a file, now and whenever the file changes.
    ///
    /// - The file is `.toml`, `.yaml` or `.yml`, as [`PolicyFile::read`] has it.
    /// - A thread reads it once a second and compares its contents, so a file that is replaced or whose symbolic link is
    ///   changed, as Kubernetes does with a `ConfigMap`, is noticed too. No async runtime is needed or blocked.
    /// - Policies that keep their name keep the spent budgets.
    /// - A file with an error, or without a policy that the program uses, is logged and changes nothing. The same holds
    ///   for a file that is gone.
    /// - Each change is counted in [`POLICY_RELOADS`](crate::metrics::POLICY_RELOADS).
    /// - Dropping the [`PolicyFileWatch`] ends it: keep that in `main`.
    ///
    /// ```
    /// # #[cfg(feature = "toml")] {
    /// use ratelimit_http::registry::Registry;
    ///
    /// # let path = std::env::temp_dir().join(format!("watch-{}.toml", std::process::id()));
    /// # std::fs::write(&path, "[policy]\nlogin = '5/min'\n")?;
    /// let registry = Registry::new();
    /// let watch = registry.watch(&path)?;
    /// assert_eq!(registry.get("login").expect("is in the file").to_string(), "token_bucket 5/min");
    /// # std::fs::remove_file(&path)?;
    /// # drop(watch);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Nothing is watched, and the registry is unchanged, after an error:
    ///
    /// - [`ReloadError::Io`] if the file cannot be read, or the thread cannot be started.
    /// - [`ReloadError::Invalid`] if the file has an error.
    /// - [`ReloadError::Missing`] as in [`Registry::replace`].
    #[doc(alias = "hot reload")]
    pub fn watch(&self, path: impl Into<PathBuf>) -> Result<PolicyFileWatch, ReloadError> {
        let path = path.into();
        metrics::register_reloads();
        let mut file = WatchedFile::load(self.clone(), path.clone())?;
        let (stop, stopped) = mpsc::channel::<()>();
        let look_until_stopped = move || {
            while stopped.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                file.look();
            }
        };
        let thread = thread::Builder::new().name("policy-file".to_owned());
        thread.spawn(look_until_stopped).map_err(ReloadError::Io)?;
        Ok(PolicyFileWatch { path, _stop: stop })
    }
}

/// A policy file that a [`Registry`] follows, made by [`Registry::watch`].
///
/// Dropping it ends that, and the registry keeps its policies.
#[must_use = "dropping it ends the watch"]
pub struct PolicyFileWatch {
    path: PathBuf,
    /// The thread ends when this is dropped.
    _stop: mpsc::Sender<()>,
}

impl fmt::Debug for PolicyFileWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PolicyFileWatch").field(&self.path).finish()
    }
}

/// A file, and the contents that were read last.
struct WatchedFile {
    registry: Registry,
    path: PathBuf,
    /// Contents, because a file can be replaced by another one of the same length and modification time.
    contents: Vec<u8>,
    is_accepted: bool,
    /// The number of looks since the file could be read.
    failed_looks: u32,
}

impl WatchedFile {
    fn load(registry: Registry, path: PathBuf) -> Result<WatchedFile, ReloadError> {
        let contents = read_bytes(&path).map_err(ReloadError::Io)?;
        let file = WatchedFile {
            registry,
            path,
            contents,
            is_accepted: true,
            failed_looks: 0,
        };
        file.apply()?;
        metrics::set_config_ok(true);
        Ok(file)
    }

    /// Reads the file, and replaces the policies if it has changed.
    fn look(&mut self) {
        let path = self.path.display();
        let contents = match read_bytes(&self.path) {
            Ok(contents) => contents,
            Err(error) => {
                self.failed_looks = self.failed_looks.saturating_add(1);
                if self.failed_looks == MAX_LOOKS {
                    metrics::set_config_ok(false);
                    tracing::error!(
                        "{path} cannot be read any more, the policies that were read last stay: {error}"
                    );
                }
                return;
            }
        };
        if self.failed_looks >= MAX_LOOKS {
            metrics::set_config_ok(self.is_accepted);
            tracing::info!("{path} can be read again");
        }
        self.failed_looks = 0;
        if contents == self.contents {
            return;
        }
        self.contents = contents;
        let applied = self.apply();
        self.is_accepted = applied.is_ok();
        metrics::count_reload(self.is_accepted);
        match applied {
            Ok(policies) => tracing::info!("{path} has changed: {policies} policies apply"),
            Err(error) => {
                tracing::error!(
                    "{path} has changed and is rejected, the previous policies stay: {error}"
                );
            }
        }
    }

    /// Replaces the policies by those of the contents, and returns their number.
    fn apply(&self) -> Result<usize, ReloadError> {
        let file = PolicyFile::from_bytes(&self.contents, &self.path);
        let policies = file.accepted_with_warnings(Some(&self.path));
        let policies = policies.map_err(ReloadError::Invalid)?;
        let count = policies.len();
        self.registry
            .replace(policies)
            .map_err(ReloadError::Missing)?;
        Ok(count)
    }
}

#[cfg(test)]
#[cfg(feature = "toml")]
mod tests {
    use std::{fs, path::Path, time::Instant};

    use tempfile::TempDir;

    use super::*;
    use crate::registry::test_log::Log;

    /// A watched file whose policy `login` allows 5 requests in a minute.
    struct Fixture {
        _dir: TempDir,
        registry: Registry,
        file: WatchedFile,
        log: Log,
    }

    impl Fixture {
        fn new() -> Fixture {
            let dir = TempDir::new().unwrap();
            let path = dir.path().join("policies.toml");
            fs::write(&path, "[policy]\nlogin = '5/min'\n").unwrap();
            let registry = Registry::new();
            Fixture {
                _dir: dir,
                file: WatchedFile::load(registry.clone(), path).unwrap(),
                registry,
                log: Log::default(),
            }
        }

        fn write(&self, text: impl AsRef<[u8]>) {
            fs::write(&self.file.path, text).unwrap();
        }

        /// Looks at the file, and returns the log lines.
        fn look(&mut self) -> Vec<String> {
            tracing::subscriber::with_default(self.log.clone(), || self.file.look());
            self.log.take()
        }

        fn login(&self) -> String {
            self.registry.get("login").unwrap().to_string()
        }
    }

    #[test]
    fn a_changed_file_replaces_the_policies_and_its_warnings_are_logged() {
        let mut fixture = Fixture::new();
        let version = fixture.registry.version();
        assert_eq!(fixture.look(), [""; 0]);
        assert_eq!(fixture.registry.version(), version, "nothing has changed");

        fixture.write("[policy]\nlogin = '3/min'\nsearch = '10/s; 1000/s'\n");
        let lines = fixture.look();

        assert_eq!(fixture.login(), "token_bucket 3/min");
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].contains("policies.toml:3: warning[shadowed-limit]"),
            "{lines:?}"
        );
        assert!(
            lines[1].contains("has changed: 2 policies apply"),
            "{lines:?}"
        );
        assert_eq!(fixture.look(), [""; 0]);
    }

    #[test]
    fn a_broken_file_changes_nothing_and_is_logged_once_with_its_lines() {
        let mut fixture = Fixture::new();

        for (text, expected) in [
            (
                &b"[policy]\nlogin = 'many'\napi = 'some'\n"[..],
                &["line 2: error[bad-limit]", "line 3: error[bad-limit]"][..],
            ),
            (b"[policy]\nlogin = '3/", &["line 2: error["]),
            (b"[policy]\nlogin = '\xff'", &["line 2: error[not-text]"]),
            (b"", &["error[empty-file]"]),
            (&vec![b'#'; 2 << 20], &["error[too-large]"]),
        ] {
            fixture.write(text);
            let lines = fixture.look();

            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(
                lines[0].contains("is rejected, the previous policies stay"),
                "{lines:?}"
            );
            for expected in expected {
                assert!(lines[0].contains(expected), "{expected}: {lines:?}");
            }
            assert_eq!(fixture.login(), "token_bucket 5/min");
            assert_eq!(fixture.look(), [""; 0]);
        }

        fixture.write("[policy]\nlogin = '3/min'\n");
        fixture.look();
        assert_eq!(fixture.login(), "token_bucket 3/min");
    }

    #[test]
    fn a_file_without_the_policy_of_a_layer_is_rejected_as_a_whole() {
        let mut fixture = Fixture::new();
        let layer = fixture.registry.get_for_layer("login").unwrap();

        fixture.write("[policy]\nlogins = '3/min'\n");
        let lines = fixture.look();

        assert!(
            lines[0].contains("no policy for the layer of \"login\""),
            "{lines:?}"
        );
        assert_eq!(fixture.login(), "token_bucket 5/min");
        assert!(fixture.registry.get("logins").is_none());
        drop(layer);
    }

    #[test]
    fn a_file_that_is_gone_is_logged_once_until_it_is_back() {
        let mut fixture = Fixture::new();
        fs::remove_file(&fixture.file.path).unwrap();

        let lines: Vec<usize> = (0..5).map(|_| fixture.look().len()).collect();
        assert_eq!(lines, [0, 0, 1, 0, 0]);
        assert_eq!(fixture.login(), "token_bucket 5/min");

        fixture.write("[policy]\nlogin = '3/min'\n");
        let lines = fixture.look();
        assert!(lines[0].contains("can be read again"), "{lines:?}");
        assert_eq!(fixture.login(), "token_bucket 3/min");
    }

    #[cfg(unix)]
    #[test]
    fn the_folder_of_a_config_map_is_replaced_behind_a_symbolic_link() {
        use std::os::unix::fs::symlink;

        let dir = TempDir::new().unwrap();
        let data = dir.path().join("..data");
        for (version, limits) in [("..1", "5/min"), ("..2", "3/min")] {
            let version = dir.path().join(version);
            fs::create_dir(&version).unwrap();
            let text = format!("[policy]\nlogin = '{limits}'\n");
            fs::write(version.join("policies.toml"), text).unwrap();
        }
        symlink("..1", &data).unwrap();
        let path = dir.path().join("policies.toml");
        symlink("..data/policies.toml", &path).unwrap();
        let registry = Registry::new();
        let mut file = WatchedFile::load(registry.clone(), path).unwrap();

        symlink("..2", dir.path().join("..data_tmp")).unwrap();
        fs::rename(dir.path().join("..data_tmp"), &data).unwrap();
        file.look();

        assert_eq!(
            registry.get("login").unwrap().to_string(),
            "token_bucket 3/min"
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_or_has_an_error_is_not_watched() {
        let dir = TempDir::new().unwrap();
        let broken = dir.path().join("broken.toml");
        fs::write(&broken, "[policy]\nlogin = 'many'").unwrap();
        let registry = Registry::new();
        let watch = |path: &Path| registry.watch(path).unwrap_err();

        assert!(matches!(
            watch(&dir.path().join("none.toml")),
            ReloadError::Io(_)
        ));
        assert!(
            watch(dir.path())
                .to_string()
                .contains("expected a regular file")
        );
        assert!(matches!(watch(&broken), ReloadError::Invalid(_)));
        assert_eq!(registry.names().len(), 0);
    }

    #[test]
    fn a_thread_follows_the_file_until_the_watch_is_dropped() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("policies.toml");
        fs::write(&path, "[policy]\nlogin = '5/min'\n").unwrap();
        let registry = Registry::new();
        let wait_until = |is_done: &dyn Fn() -> bool| {
            let begin = Instant::now();
            while !is_done() {
                assert!(begin.elapsed() < Duration::from_secs(60));
                thread::sleep(Duration::from_millis(10));
            }
        };

        let watch = registry.watch(&path).unwrap();
        let login = || registry.get("login").unwrap().to_string();
        assert_eq!(login(), "token_bucket 5/min");
        fs::write(&path, "[policy]\nlogin = '3/min'\n").unwrap();
        wait_until(&|| login() == "token_bucket 3/min");

        // The thread has a clone of the registry.
        drop(watch);
        wait_until(&|| std::sync::Arc::strong_count(&registry.shared) == 1);
    }
}

//! Reads files that the server reads again while it runs: bounded in size, and in time for everything else.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read as _},
    path::Path,
    time::Duration,
};

use metrics::gauge;
use tokio::task::{JoinError, spawn_blocking};

use crate::metrics::FILE_READ_STUCK;

/// The maximum size of a file in bytes, for certificates, tokens and policies alike.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 20;

/// The time after which a read counts as stuck, as one of a network mount whose server is gone.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// Reads a regular file of at most 1 MiB.
///
/// A directory, FIFO, socket or device is an error: opening or reading one may never end.
pub(crate) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = read_start(path, MAX_FILE_BYTES)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let message = format!("expected a file of at most {MAX_FILE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// Reads the first `max` bytes of a regular file, and one more if the file is longer.
pub(crate) fn read_start(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    // Before the file is opened: opening a FIFO waits for its writer.
    check_regular(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    check_regular(&file.metadata()?)?;
    let mut bytes = Vec::new();
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn check_regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let message = "expected a regular file, not a directory, FIFO, socket or device";
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Reads files, and does work with them, in a thread that may block.
///
/// - The owner waits for each piece of work before it starts the next one, so a mount that hangs takes one thread and no more.
/// - Work that takes longer than 5 s is logged, and the gauge [`FILE_READ_STUCK`] is 1 until it ends.
#[derive(Debug)]
pub(crate) struct FileThread {
    /// What is read: the label of the metric, and the word in the log.
    files: &'static str,
}

impl FileThread {
    pub(crate) fn new(files: &'static str) -> FileThread {
        gauge!(FILE_READ_STUCK, "files" => files).set(0.0);
        FileThread { files }
    }

    /// Runs `work` and waits for its result.
    ///
    /// # Errors
    ///
    /// Fails if `work` panics, or if the runtime ends.
    pub(crate) async fn run<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let mut done = spawn_blocking(work);
        if let Ok(done) = tokio::time::timeout(STUCK_AFTER, &mut done).await {
            return done;
        }
        let files = self.files;
        gauge!(FILE_READ_STUCK, "files" => files).set(1.0);
        tracing::warn!(
            files,
            "reading files has not ended for {STUCK_AFTER:?}: changes of them have no effect until it does"
        );
        let done = done.await;
        gauge!(FILE_READ_STUCK, "files" => files).set(0.0);
        tracing::info!(files, "files can be read again");
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::metrics::recorder;

    #[test]
    fn only_regular_files_of_at_most_1_mib_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let max = usize::try_from(MAX_FILE_BYTES).unwrap();

        fs::write(&path, vec![b'a'; max]).unwrap();
        assert_eq!(read_file(&path).unwrap().len(), max);
        fs::write(&path, vec![b'a'; max + 2]).unwrap();
        assert_eq!(
            read_file(&path).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        assert_eq!(read_start(&path, 5).unwrap(), b"aaaaaa");
        for other in [folder.path(), Path::new("/dev/zero")] {
            let why = read_file(other).unwrap_err();
            assert_eq!(why.kind(), io::ErrorKind::InvalidInput, "{why}");
        }
    }

    #[test]
    fn work_that_hangs_is_reported_until_it_ends_and_other_tasks_go_on() {
        let recorder = recorder("test");
        let handle = recorder.handle();
        let stuck = |value: u8| {
            let line = format!("files=\"token\"}} {value}\n");
            handle.render().contains(&line)
        };
        let (release, is_released) = mpsc::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        metrics::with_local_recorder(&recorder, || {
            runtime.block_on(async {
                let mut thread = FileThread::new("token");
                assert!(stuck(0));
                let mut work = std::pin::pin!(thread.run(move || is_released.recv()));
                // Polled first: other tasks run while the work blocks.
                tokio::select! {
                    biased;
                    _ = &mut work => panic!("the work hangs"),
                    () = tokio::task::yield_now() => {}
                }
                assert!(stuck(0));
                tokio::time::advance(STUCK_AFTER).await;
                tokio::select! {
                    biased;
                    _ = &mut work => panic!("the work hangs"),
                    () = tokio::task::yield_now() => {}
                }
                assert!(stuck(1));

                release.send(()).unwrap();

                assert_eq!(work.await.unwrap(), Ok(()));
                assert!(stuck(0));
            });
        });
    }
}

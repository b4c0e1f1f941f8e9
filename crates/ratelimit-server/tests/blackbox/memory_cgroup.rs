//! A limit of memory for a process, as a container has.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

/// A memory cgroup that is removed when this is dropped. Its processes must have ended.
pub(crate) struct MemoryCgroup(PathBuf);

impl MemoryCgroup {
    /// A cgroup with a limit in bytes, or `None` on a machine that allows none to this process.
    pub(crate) fn create(limit: u64) -> Option<MemoryCgroup> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ratelimit-test-{}-{number}", process::id());
        let parents = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        let created = parents.into_iter().find_map(|(parent, file)| {
            // Elsewhere a directory would be an ordinary one.
            let is_cgroup = Path::new(parent).join("cgroup.procs").exists();
            let cgroup = MemoryCgroup(Path::new(parent).join(&name));
            let limited = is_cgroup.then(|| cgroup.limit(file, limit))?;
            limited.ok().map(|()| cgroup)
        });
        if created.is_none() {
            println!("no memory cgroup can be made here: only the resident memory is compared");
        }
        created
    }

    fn limit(&self, file: &str, limit: u64) -> io::Result<()> {
        fs::create_dir(&self.0)?;
        fs::write(self.0.join(file), limit.to_string())
    }

    /// Changes a command so that its process starts in the cgroup.
    pub(crate) fn enclose(&self, command: &mut Command) {
        let mut enclosed = Command::new("sh");
        enclosed
            .args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""])
            .arg(&self.0)
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => enclosed.env(name, value),
                None => enclosed.env_remove(name),
            };
        }
        *command = enclosed;
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            match fs::remove_dir(&self.0) {
                Err(why) if why.kind() == io::ErrorKind::ResourceBusy => {
                    thread::sleep(Duration::from_millis(20));
                }
                _ => return,
            }
        }
    }
}

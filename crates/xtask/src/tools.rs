//! The other programs that tests start: proxies in front of a service.

use std::{env, path::PathBuf};

use crate::{
    failure::Failure,
    install::{self, Program},
};

struct Tool {
    binary: &'static str,
    package: Program,
}

const TOOLS: [Tool; 2] = [
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
];

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

//! Programs from the system's package manager.

use std::{path::Path, process::Command};

use crate::{
    command::{answers, output, run, succeeds},
    failure::Failure,
};

/// A program by the names that package managers give it.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) apt: &'static str,
    pub(crate) dnf: &'static str,
    pub(crate) brew: &'static str,
}

/// Installs a program, or says what to run when we may not.
pub(crate) fn install(program: &Program) -> Result<(), Failure> {
    let present: Vec<Manager> = Manager::ALL
        .into_iter()
        .filter(|manager| manager.is_present())
        .collect();
    let Some(manager) = present.iter().find(|manager| manager.rights().is_some()) else {
        return Err(refusal(&present, program));
    };

    let by_hand = manager.by_hand(program);
    println!("installing: {by_hand}");
    let rights = manager.rights().unwrap_or_default();
    if let Manager::Apt = manager {
        // One unreachable source fails the update, and need not be the one we need.
        succeeds(&mut line(rights, &["apt-get", "update", "-q"]));
    }
    run(
        &mut line(rights, &manager.install(program)),
        &format!("run `{by_hand}`"),
    )
}

fn refusal(present: &[Manager], program: &Program) -> Failure {
    let Some(manager) = present.first() else {
        let advice = format!("install `{}`, or what your system calls it", program.apt);
        return Failure::new("there is no apt-get, dnf or brew to install with", advice);
    };
    let advice = format!("run `{}`", manager.by_hand(program));
    Failure::new("there is no right to install programs here", advice)
}

/// Stops a service that came with an installed program: only its binary is wanted.
pub(crate) fn stop_service(unit: &str) {
    if !Path::new("/run/systemd/system").exists() {
        return;
    }
    let Some(rights) = Manager::Apt.rights() else {
        return;
    };
    succeeds(&mut line(rights, &["systemctl", "disable", "--now", unit]));
}

fn line(rights: &[&str], words: &[&str]) -> Command {
    let words = [rights, words].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

#[derive(Debug, Clone, Copy)]
enum Manager {
    Apt,
    Dnf,
    Brew,
}

impl Manager {
    const ALL: [Manager; 3] = [Manager::Apt, Manager::Dnf, Manager::Brew];

    fn is_present(self) -> bool {
        answers(match self {
            Manager::Apt => "apt-get",
            Manager::Dnf => "dnf",
            Manager::Brew => "brew",
        })
    }

    /// The words before a command that installs; `None` if we may not install.
    fn rights(self) -> Option<&'static [&'static str]> {
        // Homebrew belongs to a user, and refuses to run as root.
        let is_root = is_root();
        match self {
            Manager::Brew => (!is_root).then_some(&[]),
            _ if is_root => Some(&[]),
            _ => succeeds(Command::new("sudo").args(["-n", "true"])).then_some(&["sudo", "-n"]),
        }
    }

    fn install(self, program: &Program) -> Vec<&'static str> {
        // Without systemd, RUNLEVEL=1 keeps a package from starting its service.
        let quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1"];
        match self {
            Manager::Apt => [
                &quiet[..],
                &[
                    "apt-get",
                    "install",
                    "-y",
                    "-q",
                    "--no-install-recommends",
                    program.apt,
                ],
            ]
            .concat(),
            Manager::Dnf => vec!["dnf", "install", "-y", program.dnf],
            Manager::Brew => vec!["brew", "install", program.brew],
        }
    }

    fn by_hand(self, program: &Program) -> String {
        match self {
            Manager::Apt => {
                format!(
                    "sudo apt-get update && sudo apt-get install -y {}",
                    program.apt
                )
            }
            Manager::Dnf => format!("sudo dnf install -y {}", program.dnf),
            Manager::Brew => format!("brew install {}", program.brew),
        }
    }
}

fn is_root() -> bool {
    output(Command::new("id").arg("-u"), "").is_ok_and(|id| id.trim_ascii() == b"0")
}

//! The scripts, by luacheck.

use std::{collections::BTreeSet, process::Command};

use crate::{
    check::tree,
    command::{answers, run},
    failure::Failure,
    install::{self, Program},
    workspace::Workspace,
};

const PACKAGE: Program = Program {
    apt: "lua-check",
    dnf: "luacheck",
    brew: "luacheck",
};

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let root = &workspace.root;
    let lua = root.join("lua");
    let paths = if lua.exists() {
        tree::files(&lua, "lua")?
    } else {
        Vec::new()
    };
    if paths.is_empty() {
        println!("there is no script yet");
        return Ok(());
    }
    if !answers("luacheck") {
        let installed = install::install(&PACKAGE);
        if !answers("luacheck") {
            installed?;
            return Err(Failure::new(
                "luacheck is missing",
                "run `luarocks install luacheck`",
            ));
        }
    }

    let mut scripts = Vec::new();
    for path in &paths {
        let name = path
            .strip_prefix(root)
            .unwrap_or(path)
            .to_string_lossy()
            .into_owned();
        scripts.push(Script::new(name, &tree::read(path)?));
    }
    let mut problems = Vec::new();
    for script in &scripts {
        let mut luacheck = Command::new("luacheck");
        luacheck
            .current_dir(root)
            .args(["--quiet", "--codes", "--no-color", &script.name]);
        luacheck.args(script.settings(&scripts));
        if run(&mut luacheck, "").is_err() {
            problems.push(format!("luacheck is not content with {}", script.name));
        }
    }
    Failure::unless_none(
        problems,
        "mend the warnings; .luacheckrc says what a script may use",
    )
}

/// A file of lua/. Scripts are assembled by putting files one after another,
/// so that a local of one file is seen by those that come after it.
struct Script {
    name: String,
    functions: BTreeSet<String>,
    values: BTreeSet<String>,
    words: BTreeSet<String>,
}

impl Script {
    fn new(name: String, text: &str) -> Script {
        let mut script = Script {
            name,
            functions: BTreeSet::new(),
            values: BTreeSet::new(),
            words: BTreeSet::new(),
        };
        for line in text.lines() {
            let code = line.split("--").next().unwrap_or_default();
            script.words.extend(words(code));
            if let Some(function) = code.strip_prefix("local function ") {
                script.functions.extend(words(function).next());
            } else if let Some(values) = code.strip_prefix("local ") {
                let names = values.split('=').next().unwrap_or_default();
                script.values.extend(words(names));
            }
        }
        script
    }

    /// The scripts that include it use its functions; its values only when another file
    /// reads them.
    fn settings(&self, all: &[Script]) -> Vec<String> {
        let others = || all.iter().filter(|other| other.name != self.name);
        let read = |value: &&String| others().any(|other| other.words.contains(*value));
        let offered = self.functions.iter().chain(self.values.iter().filter(read));
        let used = others()
            .flat_map(|other| other.functions.iter().chain(&other.values))
            .filter(|name| self.words.contains(*name));

        let ignored = offered.flat_map(|name| ["--ignore".to_owned(), format!("211/^{name}$")]);
        let given = used.flat_map(|name| ["--read-globals".to_owned(), name.clone()]);
        ignored.chain(given).collect()
    }
}

fn words(code: &str) -> impl Iterator<Item = String> {
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_see_what_the_others_offer_and_no_more() {
        let head = Script::new(
            "lua/head.lua".to_owned(),
            "local now, unused = 1, 2 -- tail\nlocal function step() local inner = now end",
        );
        let tail = Script::new("lua/tail.lua".to_owned(), "return step(now)\n");
        let all = [head, tail];

        assert_eq!(
            all[0].settings(&all),
            ["--ignore", "211/^step$", "--ignore", "211/^now$"]
        );
        assert_eq!(
            all[1].settings(&all),
            ["--read-globals", "step", "--read-globals", "now"]
        );
    }
}

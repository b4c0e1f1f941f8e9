//! The scripts, by luacheck.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    process::Command,
};

use crate::{
    command::{answers, run},
    failure::Failure,
    files,
    install::{self, Program},
    workspace::Workspace,
};

const PACKAGE: Program = Program {
    apt: "lua-check",
    dnf: "luacheck",
    brew: "luacheck",
};

/// The template of the script for limits of one key, and its parts.
const UNROLLED: &str = "lua/check_unrolled.lua";
const UNROLLED_PARTS: &str = "lua/unrolled_";

/// The template of the script for joint hits on fixed windows, and the part of each.
const JOINT: &str = "lua/check_joint_windows.lua";
const JOINT_PART: &str = "lua/joint_window.lua";

/// The assembler of the engine.
#[path = "../../../ratelimit-core/src/store/redis/script/assemble.rs"]
mod unrolled;

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let root = &workspace.root;
    let lua = root.join("lua");
    let paths = if lua.exists() {
        files::files(&lua, "lua")?
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

    let mut sources = Vec::new();
    for path in &paths {
        let name = path
            .strip_prefix(root)
            .unwrap_or(path)
            .to_string_lossy()
            .into_owned();
        sources.push((name, files::read(path)?));
    }
    let scripts: Vec<Script> = expanded(&sources)
        .into_iter()
        .map(|(name, text)| Script::new(name, text))
        .collect();
    let mut problems = Vec::new();
    for script in &scripts {
        let expanded = workspace.target_directory.join("luacheck.lua");
        let written = fs::write(&expanded, &script.text).and_then(|()| File::open(&expanded));
        let text = written.map_err(|why| {
            Failure::new(format!("{}: {why}", expanded.display()), "make room for it")
        })?;
        let mut luacheck = Command::new("luacheck");
        luacheck.current_dir(root).stdin(text).args([
            "-",
            "--filename",
            &script.name,
            "--quiet",
            "--codes",
            "--no-color",
        ]);
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

/// The files with each line `-- @include NAME` replaced by the file `lua/NAME.lua`, and without those files: a
/// fragment is checked where it is included. The template is checked as it is assembled for a limit of each algorithm.
fn expanded(sources: &[(String, String)]) -> Vec<(String, String)> {
    let is_part = |name: &str| name.starts_with(UNROLLED_PARTS);
    let parts = sources.iter().filter(|(name, _)| is_part(name));
    let parts: Vec<&str> = parts.map(|(_, text)| text.as_str()).collect();
    let fixed: Vec<&str> = parts
        .iter()
        .filter(|part| part.contains("-- @stored"))
        .copied()
        .collect();
    let joint = sources.iter().find(|(name, _)| name == JOINT_PART);
    let joint: Vec<&str> = joint.map(|(_, text)| text.as_str()).into_iter().collect();
    let sources: Vec<(String, String)> = sources
        .iter()
        .filter(|(name, _)| !is_part(name) && name != JOINT_PART)
        .flat_map(|(name, text)| match name.as_str() {
            UNROLLED => [&parts, &fixed]
                .map(|parts| (name.clone(), unrolled::assemble(text, parts)))
                .to_vec(),
            JOINT => vec![(name.clone(), unrolled::assemble(text, &joint))],
            _ => vec![(name.clone(), text.clone())],
        })
        .collect();
    let include = |line: &str| line.trim().strip_prefix("-- @include ").map(fragment_name);
    let lines = sources.iter().flat_map(|(_, text)| text.lines());
    let fragments: BTreeSet<String> = lines.filter_map(include).collect();
    let whole = sources.iter().filter(|(name, _)| !fragments.contains(name));
    let expand = |line: &str| match include(line) {
        Some(name) => sources
            .iter()
            .find(|(other, _)| *other == name)
            .map_or_else(|| line.to_owned(), |(_, text)| text.clone()),
        None => line.to_owned(),
    };
    whole
        .map(|(name, text)| {
            let lines: Vec<String> = text.lines().map(expand).collect();
            (name.clone(), lines.join("\n") + "\n")
        })
        .collect()
}

fn fragment_name(name: &str) -> String {
    format!("lua/{name}.lua")
}

/// A file of lua/. Scripts are assembled by concatenating files, so a file sees the locals of those before it.
struct Script {
    name: String,
    text: String,
    functions: BTreeSet<String>,
    values: BTreeSet<String>,
    words: BTreeSet<String>,
}

impl Script {
    fn new(name: String, text: String) -> Script {
        let mut script = Script {
            name,
            text: String::new(),
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
        script.text = text;
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
            "local now, unused = 1, 2 -- tail\nlocal function step() local inner = now end"
                .to_owned(),
        );
        let tail = Script::new("lua/tail.lua".to_owned(), "return step(now)\n".to_owned());
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

    #[test]
    fn a_fragment_is_checked_where_it_is_included() {
        let source = |name: &str, text: &str| (format!("lua/{name}.lua"), text.to_owned());
        let sources = [
            source("check", "local a = 1\n  -- @include step\nreturn a\n"),
            source("step", "a = a + 1\n"),
        ];

        let expanded = expanded(&sources);

        assert_eq!(
            expanded,
            [source("check", "local a = 1\na = a + 1\n\nreturn a\n")]
        );
    }
}

//! The scripts, by luacheck.

use std::{
    fs::{self, File},
    path::Path,
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

/// The first parts of general scripts, and the script that has only the first of them.
const PRELUDE: &str = "lua/prelude.lua";
const CHANGES: &str = "lua/changes.lua";
const CHECK: &str = "lua/check.lua";
/// The sections of an algorithm as functions.
const STEP: &str = "lua/step.lua";
/// The template for members of a joint hit, which are fixed windows. Other templates are for limits of any algorithm.
const JOINT: &str = "lua/check_joint_windows.lua";
const WINDOW: &str = "lua/fixed_window.lua";

/// The assembler of the engine.
#[path = "../../../ratelimit-core/src/store/redis/script/assemble.rs"]
mod assemble;

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let root = &workspace.root;
    let lua = root.join("lua");
    let paths = if lua.exists() {
        files::files(&lua, "lua")?
    } else {
        Vec::new()
    };
    if paths.is_empty() {
        let problem = format!("{} has no scripts", lua.display());
        return Err(Failure::new(
            problem,
            "run this at the top of the repository",
        ));
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
    let scripts = assembled(&sources);
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
        luacheck.args(&script.settings);
        if run(&mut luacheck, "").is_err() {
            problems.push(format!("luacheck is not content with {}", script.name));
        }
    }
    Failure::unless_none(
        problems,
        "fix the warnings; .luacheckrc says what a script may use",
    )
}

/// A script as Redis gets it, but for the table of functions and the values of codes.
struct Script {
    /// The file that gives it its name.
    name: String,
    text: String,
    /// What the parts that it shares with other scripts offer, and it need not use.
    settings: Vec<String>,
}

/// The scripts of all files that are not part of others: general ones behind their parts and the functions of each
/// algorithm, and templates for the algorithms that have a step in sections.
fn assembled(sources: &[(String, String)]) -> Vec<Script> {
    let source = |name: &str| {
        let found = sources.iter().find(|(other, _)| other == name);
        found.map_or("", |(_, text)| text.as_str())
    };
    let is_algorithm = |text: &str| text.contains("\n-- @section ");
    let algorithms: Vec<_> = sources.iter().filter(|(_, it)| is_algorithm(it)).collect();
    let functions = |sections: &[&str]| {
        let functions = algorithms.iter().map(|(name, text)| {
            let name = name.trim_start_matches("lua/").trim_end_matches(".lua");
            let step = assemble::step(source(STEP), name, text);
            let sections = sections.iter().map(|name| assemble::section(text, name));
            step + &sections.collect::<String>()
        });
        functions.collect::<String>()
    };
    let has = |list: &str| {
        let texts = algorithms.iter().map(|(_, text)| text.as_str());
        texts.filter(|text| text.contains(list)).collect::<Vec<_>>()
    };
    let (stepped, fixed) = (has("-- @numbers "), has("-- @format "));

    let mut scripts = Vec::new();
    for (name, text) in sources {
        let is_part = is_algorithm(text) || text.starts_with("-- Fragment");
        let is_lua = Path::new(name).extension().is_some_and(|end| end == "lua");
        if is_part || !is_lua || name == PRELUDE || name == CHANGES {
            continue;
        }
        let mut push = |shared: String, text: &str| {
            scripts.push(Script {
                name: name.clone(),
                settings: settings(&shared),
                text: shared + text,
            });
        };
        let whole = with_includes(text, &source);
        if name == JOINT {
            push(String::new(), &assemble::unroll(&whole, &[source(WINDOW)]));
        } else if text.contains("-- @limits") {
            for files in [&stepped, &fixed] {
                push(String::new(), &assemble::unroll(&whole, files));
            }
        } else {
            let (changes, sections): (&str, &[&str]) = match name.as_str() {
                CHECK => ("", &["functions"]),
                _ => (source(CHANGES), &["functions", "settle"]),
            };
            let head = with_includes(&[source(PRELUDE), changes].concat(), &source);
            push(head + &functions(sections), &whole);
        }
    }
    scripts
}

/// The text with files in place of the lines `-- @include NAME`.
fn with_includes<'a>(text: &str, source: &impl Fn(&str) -> &'a str) -> String {
    let include = |line: &str| {
        let name = line.trim().strip_prefix("-- @include ")?;
        Some(source(&format!("lua/{name}.lua")).to_owned())
    };
    let lines = text
        .lines()
        .map(|line| include(line).unwrap_or_else(|| format!("{line}\n")));
    lines.collect()
}

/// Permits to leave functions and values of these parts unused.
fn settings(shared: &str) -> Vec<String> {
    let names = shared.lines().flat_map(|line| {
        let code = line.strip_prefix("local ").unwrap_or_default();
        let (code, end) = match code.strip_prefix("function ") {
            Some(function) => (function, "("),
            None => (code, "="),
        };
        words(code.split(end).next().unwrap_or_default())
    });
    names
        .flat_map(|name| ["--ignore".to_owned(), format!("211/^{name}$")])
        .collect()
}

fn words(code: &str) -> Vec<String> {
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(sources: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<(String, String)> = sources
            .iter()
            .map(|(name, text)| (format!("lua/{name}.lua"), (*text).to_owned()))
            .collect();
        let scripts = assembled(&sources).into_iter();
        scripts.map(|script| script.text).collect()
    }

    #[test]
    fn a_script_is_checked_behind_its_parts_and_with_its_fragments() {
        let texts = texts(&[
            ("prelude", "local now = 1\n"),
            ("changes", "local function store() end\n"),
            ("check", "  -- @include frame\nreturn now\n"),
            ("reset", "store()\n"),
            ("frame", "-- Fragment: a frame.\nlocal frame = 2\n"),
            (
                "penalty_box",
                "-- Head.\n-- @section functions\nlocal function roll() end\n",
            ),
        ]);

        assert_eq!(
            texts,
            [
                "local now = 1\nlocal function roll() end\n-- Fragment: a frame.\nlocal frame = 2\nreturn now\n",
                "local now = 1\nlocal function store() end\nlocal function roll() end\nstore()\n",
            ]
        );
    }

    #[test]
    fn what_the_parts_offer_may_stay_unused() {
        let settings =
            settings("local now, unused = 1, 2\nlocal function step() local inner end\n");

        let names = ["now", "unused", "step"].map(|name| format!("211/^{name}$"));
        let ignored = settings.iter().filter(|it| *it != "--ignore");
        assert!(ignored.eq(&names), "{settings:?}");
    }
}

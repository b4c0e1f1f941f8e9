//! The sessions of docs/reference/server.md and docs/start/server.md, typed into a shell.

use std::{env, fs, path::Path, process::Command};

use regex_lite::Regex;
use tempfile::TempDir;

use crate::server::Server;

const REFERENCE: &str = include_str!("../../../../docs/reference/server.md");
const START: &str = include_str!("../../../../docs/start/server.md");
const ADDR: &str = "127.0.0.1:8080";

/// What separates the output of one command from that of the next.
const SEAM: &str = "--- next ---";

/// A command of a page, with the lines that it prints.
type Typed = (&'static str, String);

/// The commands of the first indented session.
fn indented_session() -> Vec<Typed> {
    let mut commands: Vec<Typed> = Vec::new();
    for line in REFERENCE.lines() {
        if let Some(command) = line.strip_prefix("    $ ") {
            commands.push((command, String::new()));
        } else if let (Some(told), Some((_, printed))) =
            (line.strip_prefix("    {"), commands.last_mut())
        {
            printed.extend(["{", told, "\n"]);
        } else if let (Some((_, printed)), "    200") = (commands.last_mut(), line) {
            *printed += "200\n";
        } else if !commands.is_empty() {
            break;
        }
    }
    commands
}

/// The commands of all fenced sessions.
fn fenced_sessions() -> Vec<Typed> {
    let mut commands: Vec<Typed> = Vec::new();
    for block in blocks(START, "console") {
        for line in block.lines() {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command, String::new())),
                (None, Some((_, printed))) => printed.extend([line, "\n"]),
                (None, None) => panic!("{line} is printed by no command"),
            }
        }
    }
    commands
}

/// The fenced blocks of a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("\n```{language}\n");
    let blocks = page.split(&fence).skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap())
        .collect()
}

/// Times that depend on when it is run, as one word.
fn timeless(text: &str) -> String {
    let times = Regex::new(r#"(AfterSeconds":|retry-after: )[1-9][0-9]*"#).unwrap();
    times.replace_all(text, "${1}N").into_owned()
}

/// Runs a line as if the server listened where the page says.
fn shell(line: &str, server: Option<&Server>, folder: &Path) -> String {
    let addr = server.map_or(ADDR.to_owned(), |server| server.addr.to_string());
    let binary = Path::new(env!("CARGO_BIN_EXE_ratelimit-server"));
    let mut path = vec![binary.parent().unwrap().to_owned()];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap()));
    let output = Command::new("sh")
        .args(["-c", &line.replace(ADDR, &addr)])
        .env("PATH", env::join_paths(path).unwrap())
        .current_dir(folder)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().replace('\r', "")
}

#[tokio::test]
async fn the_session_of_the_page_goes_as_it_stands() {
    let mut commands = indented_session().into_iter();
    let (start, _) = commands.next().unwrap();
    let words: Vec<&str> = start.split('\'').collect();
    let policies: Vec<&str> = words.iter().skip(1).step_by(2).copied().collect();
    assert_eq!(policies.len(), 2, "{start}");
    assert!(start.contains("--admin-without-token"), "{start}");
    let server = Server::start_admin(&["--policy", policies[0], "--policy", policies[1]]);
    let commands: Vec<_> = commands.collect();
    assert!(commands.len() > 10, "{commands:?}");

    let typed = commands.iter().map(|(command, _)| *command);
    let typed: Vec<&str> = typed.collect();
    let script = typed.join(&format!("\necho\necho '{SEAM}'\n"));
    let told = shell(&script, Some(&server), Path::new("."));

    let mut told = told.split(SEAM);
    for (command, expected) in &commands {
        let printed = timeless(told.next().unwrap().trim());
        assert_eq!(printed, timeless(expected.trim()), "{command}");
    }
}

#[tokio::test]
async fn the_first_steps_go_as_they_stand() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("server.toml");
    fs::write(&file, blocks(START, "toml")[0]).unwrap();
    let mut server = None;
    let mut compared = 0;

    for (command, expected) in fenced_sessions() {
        if let Some(arguments) = command
            .strip_prefix("ratelimit-server ")
            .and_then(|arguments| arguments.strip_suffix(" &"))
        {
            assert_eq!(expected, "", "{command}");
            let arguments = arguments.replace('\'', "");
            let arguments = arguments.replace("server.toml", file.to_str().unwrap());
            let arguments: Vec<&str> = arguments.split(' ').collect();
            server = Some(Server::start(&arguments));
        } else {
            let printed = shell(command, server.as_ref(), folder.path());
            assert_eq!(
                timeless(printed.trim()),
                timeless(expected.trim()),
                "{command}"
            );
            compared += 1;
        }
    }
    assert_eq!(compared, 7);
}

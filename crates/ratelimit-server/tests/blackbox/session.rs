//! The session of docs/reference/server.md, typed into a shell.

use std::process::Command;

use regex_lite::Regex;

use crate::server::Server;

const DOCS: &str = include_str!("../../../../docs/reference/server.md");
const ADDR: &str = "127.0.0.1:8080";

/// What separates the output of one command from that of the next.
const SEAM: &str = "--- next ---";

/// The commands of the session, each with the lines that it prints.
fn session() -> Vec<(&'static str, String)> {
    let mut commands: Vec<(&str, String)> = Vec::new();
    for line in DOCS.lines() {
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

/// Times that depend on when it is run, as one word.
fn timeless(text: &str) -> String {
    let times = Regex::new(r#"(AfterSeconds":)[1-9][0-9]*"#).unwrap();
    times.replace_all(text, "${1}N").into_owned()
}

#[tokio::test]
async fn the_session_of_the_page_goes_as_it_stands() {
    let mut commands = session().into_iter();
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
    let script = script.replace(ADDR, &server.addr.to_string());
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();

    let told = String::from_utf8(output.stdout).unwrap();
    let mut told = told.split(SEAM);
    for (command, expected) in &commands {
        let printed = timeless(told.next().unwrap().trim());
        assert_eq!(printed, timeless(expected.trim()), "{command}");
    }
}

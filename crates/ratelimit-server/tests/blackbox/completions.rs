//! Shell completions, read by bash, and by the other shells that are installed.

use std::{fs, path::Path, process::Command};

use tempfile::TempDir;

use crate::server::binary;

fn script(shell: &str) -> String {
    let output = binary().args(["completions", shell]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether the shell reads the script without an error, or `None` if it is not installed.
fn parses(shell: &str, args: &[&str], path: &Path) -> Option<bool> {
    let output = Command::new(shell).args(args).arg(path).output().ok()?;
    eprintln!("{shell}: {}", String::from_utf8_lossy(&output.stderr));
    Some(output.status.success())
}

#[test]
fn each_script_has_the_commands_and_bash_and_each_other_installed_shell_parse_theirs() {
    let dir = TempDir::new().unwrap();
    for (shell, flags) in [
        ("bash", &["-n"][..]),
        ("zsh", &["-n"]),
        ("fish", &["--no-execute"]),
        ("elvish", &["-compileonly"]),
        ("powershell", &[]),
    ] {
        let text = script(shell);
        for word in ["simulate", "check-config", "admin-token-file"] {
            assert!(text.contains(word), "{shell} does not complete {word}");
        }
        let path = dir.path().join(shell);
        fs::write(&path, text).unwrap();
        let outcome = (!flags.is_empty()).then(|| parses(shell, flags, &path));
        if let Some(parsed) = outcome.flatten() {
            assert!(parsed, "{shell} does not parse its script");
        } else {
            assert_ne!(shell, "bash", "bash is not installed");
            println!("{shell} is not installed, or has no check: its script was not parsed");
        }
    }
}

/// The words that bash proposes for the last of these.
fn completed(words: &[&str]) -> Vec<String> {
    let line = words.join(" ");
    let program = format!(
        "source <(\"$1\" completions bash)\n\
         COMP_WORDS=({line})\nCOMP_CWORD={}\nCOMP_LINE='{line}'\nCOMP_POINT=${{#COMP_LINE}}\n\
         function=$(complete -p ratelimit-server | sed 's/.* -F \\([^ ]*\\) .*/\\1/')\n\
         \"$function\" ratelimit-server '{}' '{}'\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.len() - 1,
        words[words.len() - 1],
        words[words.len() - 2],
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &program, "bash"]);
    let output = bash.arg(binary().get_program()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_flags_commands_and_their_values() {
    assert_eq!(
        completed(&["ratelimit-server", "--admin-token"]),
        ["--admin-token-file"]
    );
    assert_eq!(completed(&["ratelimit-server", "simu"]), ["simulate"]);
    assert_eq!(
        completed(&["ratelimit-server", "check-config", "--he"]),
        ["--help"]
    );
    assert_eq!(
        completed(&["ratelimit-server", "completions", "po"]),
        ["powershell"]
    );
}

#[test]
fn an_unknown_shell_is_an_error_that_names_the_known_ones() {
    let output = binary().args(["completions", "csh"]).output().unwrap();

    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("bash, elvish, fish, powershell, zsh"),
        "{text}"
    );
}

#[test]
fn the_version_is_that_of_the_package() {
    for flag in ["--version", "-V"] {
        let output = binary().arg(flag).output().unwrap();

        assert!(output.status.success(), "{output:?}");
        let expected = concat!("ratelimit-server ", env!("CARGO_PKG_VERSION"), "\n");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }
}

//! The shell blocks of a page as one script.

use super::block::Block;

/// Begins the line that separates the outputs of two steps.
pub(super) const SEAM: char = '\u{1e}';

/// Commands of a page, and the output that the page shows for them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Line of the block on the page.
    pub(super) line: usize,
    pub(super) commands: String,
    pub(super) shown: Option<String>,
}

/// The steps of a page in their order.
pub(super) fn steps(blocks: &[Block]) -> Vec<Step> {
    let mut steps = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        if block.is_untested || !["sh", "console"].contains(&block.language.as_str()) {
            continue;
        }
        if !block.hidden.is_empty() {
            steps.push(Step {
                line: block.line,
                commands: block.hidden.join("\n"),
                shown: None,
            });
        }
        if block.language == "console" {
            steps.extend(console(block));
            continue;
        }
        if block.text.lines().all(is_checked) {
            continue;
        }
        let output = blocks.get(at + 1);
        let output = output.filter(|next| next.follows && next.language == "text");
        steps.push(Step {
            line: block.line,
            commands: block.text.clone(),
            shown: output.map(|output| output.text.clone()),
        });
    }
    steps
}

/// Whether a line is empty, a comment, or a command whose names the test `code_blocks` checks.
fn is_checked(line: &str) -> bool {
    let line = line.trim();
    let starts = ["#", "cargo nextest ", "cargo xtask ", "cargo test "];
    line.is_empty() || starts.iter().any(|start| line.starts_with(start))
}

/// The commands of a block behind `$ `, each with the lines below it.
fn console(block: &Block) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut continues = false;
    for line in block.text.lines() {
        let command = line.strip_prefix("$ ");
        if let Some(command) = command {
            steps.push(Step {
                line: block.line,
                commands: format!("{command}\n"),
                shown: None,
            });
        } else if let Some(step) = steps.last_mut() {
            if continues {
                step.commands.extend([line, "\n"]);
            } else {
                step.shown.get_or_insert_default().extend([line, "\n"]);
            }
        }
        continues = (command.is_some() || continues) && line.ends_with('\\');
    }
    steps
}

/// The script that runs the steps and separates their outputs.
pub(super) fn script(steps: &[Step]) -> String {
    let mut servers = 0;
    let steps = (0..).zip(steps).map(|(number, step)| {
        let commands = with_ready_servers(&step.commands, &mut servers);
        let on_error = if step.shown.is_some() {
            "set +e +o pipefail"
        } else {
            "set -e -o pipefail"
        };
        format!("printf '\\n{SEAM}{number}\\n'\n{on_error}\n{commands}\n")
    });
    let steps: String = steps.collect();
    format!("exec 2>&1\n{steps}exit 0\n")
}

/// Waits behind each command that starts a server with `&`, as a reader does.
fn with_ready_servers(commands: &str, servers: &mut usize) -> String {
    let mut script = String::new();
    let mut command = String::new();
    for line in commands.lines() {
        command.extend([line, "\n"]);
        if line.ends_with('\\') {
            continue;
        }
        let is_background = line
            .split(" #")
            .next()
            .unwrap_or_default()
            .trim_end()
            .ends_with('&');
        if is_background && starts_server(&command) {
            *servers += 1;
            let number = servers.to_string();
            script.extend(["TYPED_STAYS=", &number, " ", &command]);
            script.extend(["typed-ready ", &number, "\n"]);
        } else {
            script += &command;
        }
        command.clear();
    }
    script + &command
}

/// Whether the first word behind variables is a program that serves.
fn starts_server(command: &str) -> bool {
    let mut words = command
        .split_whitespace()
        .skip_while(|word| word.contains('='));
    matches!(
        (words.next(), words.next()),
        (Some("ratelimit-server"), _) | (Some("cargo"), Some("run"))
    )
}

#[cfg(test)]
mod tests {
    use super::{super::block, *};

    #[test]
    fn a_step_has_its_output() {
        let page = "<!-- typed: x=1 -->\n```sh\na\n```\n\n```text\nA\n```\n```sh untested\nb\n```\n\
            ```console\n$ c \\\n  d\nC\nD\n$ e\n```\n";

        let steps = steps(&block::blocks(page));

        let seen: Vec<_> = steps
            .iter()
            .map(|step| (step.commands.as_str(), step.shown.as_deref()))
            .collect();
        assert_eq!(
            seen,
            [
                ("x=1", None),
                ("a\n", Some("A\n")),
                ("c \\\n  d\n", Some("C\nD\n")),
                ("e\n", None)
            ]
        );
    }

    #[test]
    fn a_server_in_the_background_is_waited_for() {
        let mut servers = 0;
        let typed = "A=b ratelimit-server \\\n  --redis x &   # one\ncurl a &\ncargo run -p b &\n";

        assert_eq!(
            with_ready_servers(typed, &mut servers),
            "TYPED_STAYS=1 A=b ratelimit-server \\\n  --redis x &   # one\ntyped-ready 1\ncurl a &\n\
             TYPED_STAYS=2 cargo run -p b &\ntyped-ready 2\n"
        );
    }
}

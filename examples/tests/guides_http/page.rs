//! A guide: its fenced blocks, and its commands typed against the example that it starts.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use tempfile::NamedTempFile;

use crate::example::Example;

const START: &str = "cargo run -p ratelimit-examples --bin ";
const ADDRESS: &str = "127.0.0.1:3000";

/// A page of docs/guides.
pub(crate) struct Page {
    blocks: Vec<(String, String)>,
}

impl Page {
    pub(crate) fn open(name: &str) -> Page {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides");
        let text = fs::read_to_string(folder.join(format!("{name}.md"))).expect("the page");
        let fences = text.split("```").skip(1).step_by(2);
        let blocks = fences.map(|block| {
            let (language, body) = block.split_once('\n').expect("its first line");
            (language.to_owned(), body.to_owned())
        });
        Page {
            blocks: blocks.collect(),
        }
    }

    /// The first block in this language.
    pub(crate) fn first(&self, language: &str) -> String {
        let block = self.blocks.iter().find(|(of, _)| of == language);
        block.expect("a block of this language").1.clone()
    }
}

/// A page whose commands were typed.
pub(crate) struct TypedPage {
    /// The number of blocks with commands and their output.
    pub(crate) blocks: usize,
    log: NamedTempFile,
}

impl TypedPage {
    /// Types the commands of a page. Blocks that start an example start it on a free port.
    pub(crate) fn of(name: &str) -> TypedPage {
        let page = Page::open(name);
        let log = NamedTempFile::new().expect("a file for the log");
        let mut example = None;
        let mut typed = 0;
        let mut blocks = page.blocks.iter();
        while let Some((language, commands)) = blocks.next() {
            let is_other = ["ratelimit-server ", "cargo nextest "];
            let is_other = is_other.iter().any(|start| commands.starts_with(start));
            if language != "sh" || is_other {
                continue;
            }
            if let Some(line) = commands.strip_prefix(START) {
                drop(example.take());
                example = Some(start(line, &log));
                continue;
            }
            let example: &Example = example.as_ref().expect("the page starts an example first");
            let (kind, expected) = blocks.next().expect("the output of the commands");
            assert_eq!(kind, "text", "the block after {commands}");
            let found = type_in(&commands.replace(ADDRESS, example.address()));
            assert!(
                is_match(expected, &found),
                "{name}: {commands}\nexpected:\n{expected}\nfound:\n{found}"
            );
            typed += 1;
        }
        TypedPage { blocks: typed, log }
    }

    /// The log of the examples.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log.path()).expect("the log")
    }
}

/// Starts the example that a line names: `NAME`, or `NAME -- ADDRESS ARGUMENTS`.
fn start(line: &str, log: &NamedTempFile) -> Example {
    let mut words = line.split_whitespace();
    let name = words.next().expect("a name");
    let arguments: Vec<&str> = words.skip_while(|word| *word == "--").skip(1).collect();
    let folder = Path::new(env!("CARGO_BIN_EXE_axum_basic")).parent();
    let binary = folder.expect("a folder").join(name);
    let log = fs::File::options().append(true).open(log.path());
    let log = Stdio::from(log.expect("the log"));
    Example::start_logging(binary.to_str().expect("text"), &arguments, log)
}

fn type_in(commands: &str) -> String {
    let output = Command::new("sh").args(["-c", commands]).output();
    let output = output.expect("a shell");
    String::from_utf8(output.stdout).expect("text")
}

/// Whether the lines are equal. `...` stands for any text.
fn is_match(expected: &str, found: &str) -> bool {
    let (expected, found) = (expected.lines(), found.lines());
    expected.clone().count() == found.clone().count()
        && expected.zip(found).all(|(expected, found)| {
            let Some((start, end)) = expected.split_once("...") else {
                return expected == found;
            };
            found.starts_with(start) && found[start.len()..].ends_with(end)
        })
}

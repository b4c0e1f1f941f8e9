//! Code blocks of pages: each has a test that reads it, or a reason why none does, and commands name what exists.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use ratelimit_tests::page::{Block, Page, root};

/// Languages whose blocks tests find on every page: shells, files, limits and queries; `text` is shown.
const FOUND_ON_ALL_PAGES: [&str; 8] = [
    "console", "json", "limit", "promql", "sh", "text", "toml", "yaml",
];
/// Languages whose blocks a test takes from a page that it names.
const TAKEN_BY_NAME: [&str; 12] = [
    "caddy",
    "dockerfile",
    "envoy",
    "haproxy",
    "html",
    "imports",
    "ini",
    "js",
    "log",
    "lua",
    "nginx",
    "redis",
];

/// The Rust files of the repository.
#[derive(Default)]
struct Sources {
    files: BTreeMap<PathBuf, String>,
    /// The text of all files in a folder.
    folders: BTreeMap<PathBuf, String>,
}

impl Sources {
    fn load() -> Sources {
        let mut sources = Sources::default();
        for folder in ["crates", "examples", "tests"] {
            sources.add(&root().join(folder));
        }
        sources
    }

    fn add(&mut self, folder: &Path) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.is_symlink() {
                self.add(&path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.ends_with("code_blocks.rs")
            {
                let text = fs::read_to_string(&path).expect("a source");
                *self.folders.entry(folder.to_owned()).or_default() += &text;
                self.files.insert(path.with_extension(""), text);
            }
        }
    }

    /// Whether a doctest includes the page.
    fn is_doctest(&self, page: &str) -> bool {
        // A crate includes a link to a page of `docs` in its folder.
        let names = [format!("/{page}\")"), format!("\"{page}\")")];
        let mut texts = self.folders.values();
        texts.any(|text| {
            let mut included = text.split("include_str!(").skip(1);
            included.any(|rest| {
                let end = rest.find(')').map_or(rest.len(), |at| at + 1);
                names.iter().any(|name| rest[..end].ends_with(name))
            })
        })
    }

    /// Whether one folder has the name of the page and the language in strings.
    fn takes(&self, page: &str, language: &str) -> bool {
        let (folder, file) = page.rsplit_once('/').unwrap_or(("", page));
        let stem = file.trim_end_matches(".md");
        let mut texts = self.folders.values();
        texts.any(|text| {
            let names_page = text.contains(&format!("{page}\""))
                || text.contains(&format!("{folder}\""))
                    && [stem, "md"]
                        .iter()
                        .any(|name| text.contains(&format!("\"{name}\"")));
            let takes = [format!("\"{language}\""), format!("```{language}")];
            names_page && takes.iter().any(|quoted| text.contains(quoted))
        })
    }

    /// The names of files, modules and functions below a folder.
    fn names(&self, folder: &Path) -> BTreeSet<String> {
        let own = self
            .files
            .iter()
            .filter(|(path, _)| path.starts_with(folder));
        let mut names = BTreeSet::new();
        for (path, text) in own {
            names.extend(path.iter().map(|part| part.to_string_lossy().into_owned()));
            for keyword in ["fn ", "mod "] {
                let found = text.split(keyword).skip(1);
                let name = found.filter_map(|rest| rest.split(|c: char| !is_name(c)).next());
                names.extend(name.map(str::to_owned));
            }
        }
        names
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Why no test reads the block; `None` if one does.
fn problem(page: &Page, block: &Block, sources: &Sources) -> Option<String> {
    let language = block.language.as_str();
    if block.is_untested || block.is_ignored {
        let mut before = page.text.lines().take(block.line - 1).collect::<Vec<_>>();
        while before.last().is_some_and(|line| line.trim().is_empty()) {
            before.pop();
        }
        let has_reason = before.last().is_some_and(|line| {
            let line = line.trim();
            line.starts_with("<!-- untested: ") && line.ends_with(" -->")
        });
        return (!has_reason).then(|| "<!-- untested: REASON --> is missing above it".to_owned());
    }
    if FOUND_ON_ALL_PAGES.contains(&language) {
        return None;
    }
    let (is_tested, problem) = match language {
        "rust" => (
            sources.is_doctest(&page.path),
            "no doctest includes the page",
        ),
        _ if TAKEN_BY_NAME.contains(&language) => (
            sources.takes(&page.path, language),
            "no test takes it from the page",
        ),
        _ => (false, "no test reads this language"),
    };
    (!is_tested).then(|| format!("`{language}`: {problem}"))
}

#[test]
fn every_code_block_has_a_test_or_a_reason() {
    let sources = Sources::load();
    let mut problems = Vec::new();
    let mut count = 0;
    for page in Page::all() {
        for block in page.blocks() {
            count += 1;
            if let Some(problem) = problem(&page, &block, &sources) {
                problems.push(format!("{}:{}: {problem}", page.path, block.line));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    assert!(count > 400, "{count} blocks");
}

/// What `cargo nextest run` and `cargo xtask` can be given.
struct Commands {
    /// The names of files, modules and functions of each package.
    packages: BTreeMap<String, BTreeSet<String>>,
    /// The commands of xtask, and the steps of `cargo xtask check`.
    xtask: BTreeSet<String>,
}

impl Commands {
    fn load() -> Commands {
        let sources = Sources::load();
        let mut packages = BTreeMap::from([
            (
                "ratelimit-examples".to_owned(),
                sources.names(&root().join("examples")),
            ),
            (
                "ratelimit-tests".to_owned(),
                sources.names(&root().join("tests")),
            ),
        ]);
        for entry in fs::read_dir(root().join("crates")).expect("a folder") {
            let folder = entry.expect("an entry").path();
            let name = folder.file_name().expect("a name").to_string_lossy();
            packages.insert(name.into_owned(), sources.names(&folder));
        }
        let help = include_str!("../../../crates/xtask/src/main.rs");
        let chores = help.lines().filter_map(|line| line.strip_prefix("  "));
        let chores = chores.filter_map(|line| line.split_whitespace().next());
        let steps = include_str!("../../../crates/xtask/src/check/mod.rs");
        let steps = steps.split(" step(").skip(1);
        let steps = steps.filter_map(|step| step.split('"').nth(1));
        Commands {
            packages,
            xtask: chores.chain(steps).map(str::to_owned).collect(),
        }
    }

    /// The first name in a command that does not exist.
    fn unknown(&self, command: &str) -> Option<String> {
        let command = command.split(" #").next().unwrap_or_default();
        if let Some(rest) = command.strip_prefix("cargo xtask ") {
            let own = rest.split(" -- ").next().unwrap_or_default();
            let mut words = own.split_whitespace().filter(|word| !word.starts_with('-'));
            let is_check = own.starts_with("check");
            let chore = words.next().into_iter();
            let mut names = chore.chain(words.filter(|_| is_check));
            return names
                .find(|word| !self.xtask.contains(*word))
                .map(str::to_owned);
        }
        if !command.starts_with("cargo nextest run ") {
            return None;
        }
        let words: Vec<&str> = command.split_whitespace().collect();
        let after = |option: &'static str| {
            let pairs = words.windows(2).filter(move |pair| pair[0] == option);
            pairs.map(|pair| pair[1])
        };
        let mut searched = Vec::new();
        for package in after("-p") {
            match self.packages.get(package) {
                Some(names) => searched.push(names),
                None => return Some(package.to_owned()),
            }
        }
        if searched.is_empty() {
            searched = self.packages.values().collect();
        }
        let filters = ["test(", "binary("].map(|kind| command.split(kind).skip(1));
        let filters = filters.into_iter().flatten();
        let filters = filters.filter_map(|filter| filter.trim_start_matches('=').split(')').next());
        let mut tests = filters.flat_map(|filter| filter.split("::"));
        let exists = |part: &str| {
            let is_placeholder = part.chars().all(char::is_uppercase);
            let mut names = searched.iter().flat_map(|names| names.iter());
            is_placeholder || names.any(|name| name.contains(part))
        };
        let targets = after("--test");
        tests
            .find(|part| !exists(part))
            .or_else(|| targets.into_iter().find(|target| !exists(target)))
            .map(str::to_owned)
    }
}

#[test]
fn commands_of_pages_name_packages_tests_and_steps_that_exist() {
    let commands = Commands::load();
    let mut problems = Vec::new();
    let mut count = 0;
    for page in Page::all() {
        for line in page.text.lines() {
            let whole = [line.trim()];
            let spans: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
            for command in whole.iter().chain(&spans) {
                count += usize::from(command.starts_with("cargo "));
                if let Some(name) = commands.unknown(command) {
                    problems.push(format!("{}: {command}: no {name}", page.path));
                }
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    assert!(count > 100, "{count} commands");
}

#[test]
fn a_block_without_a_test_and_a_command_without_a_target_are_found() {
    let sources = Sources::load();
    let is_wrong = |text: &str| {
        let page = Page {
            path: "docs/nowhere/none.md".to_owned(),
            text: text.to_owned(),
        };
        problem(&page, &page.blocks()[0], &sources).is_some()
    };
    for block in ["cobol", "", "rust", "nginx", "sh untested", "rust,ignore"] {
        assert!(is_wrong(&format!("a\n\n```{block}\nb\n```\n")), "{block}");
    }
    assert!(!is_wrong(
        "<!-- untested: a reason -->\n```sh untested\nb\n```\n"
    ));

    let commands = Commands::load();
    for command in [
        "cargo xtask tset",
        "cargo xtask check spelling",
        "cargo nextest run -p ratelimit-test",
        "cargo nextest run -p ratelimit-tests --test engin2",
        "cargo nextest run -E 'test(code_blocks) or test(gone_by_now::a)'",
    ] {
        // The name of the filter above is in this file, so it is put together here.
        let command = command.replace("gone_by_now", &["gone", "by", "then"].join("_"));
        assert!(commands.unknown(&command).is_some(), "{command}");
    }
    assert_eq!(commands.unknown("cargo xtask check links # fast"), None);
}

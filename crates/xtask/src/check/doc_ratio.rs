//! Doc lines per code line.

use crate::{
    check::rust_file::{self, RustFile},
    failure::Failure,
    workspace::Workspace,
};

/// Crates and the least doc lines they have for 100 code lines.
const MINIMUM: [(&str, usize); 2] = [("ratelimit-core", 40), ("ratelimit-http", 40)];

const ADVICE: &str = "\
    say on each public type what it is and how it behaves, with an example, `# Errors` and `# Panics`";

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let files = rust_file::load(&workspace.root)?;
    let mut problems = Vec::new();
    for (crate_name, minimum) in MINIMUM {
        let own = files.iter().filter(|file| file.crate_name == crate_name);
        let lines = own.map(Lines::of).fold(Lines::default(), Lines::plus);
        let ratio = lines.docs_per_100();
        println!(
            "    {crate_name}: {ratio} doc lines for 100 code lines, {minimum} is the minimum"
        );
        if ratio < minimum {
            problems.push(format!(
                "{crate_name}: {} doc lines for {} code lines are {ratio} in 100, less than {minimum}",
                lines.docs, lines.code
            ));
        }
    }
    Failure::unless_none(problems, ADVICE)
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Lines {
    docs: usize,
    code: usize,
}

impl Lines {
    fn of(file: &RustFile) -> Lines {
        let mut lines = Lines::default();
        for line in file.text.lines().map(str::trim_start) {
            if line.starts_with("///") || line.starts_with("//!") {
                lines.docs += 1;
            } else if !line.is_empty() && !line.starts_with("//") {
                lines.code += 1;
            }
        }
        lines
    }

    fn plus(self, other: Lines) -> Lines {
        Lines {
            docs: self.docs + other.docs,
            code: self.code + other.code,
        }
    }

    fn docs_per_100(self) -> usize {
        // A crate without code is one that the table names wrongly.
        (self.docs * 100).checked_div(self.code).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_are_counted_and_comments_and_tests_are_not() {
        let text = "//! A\n\n/// B\n// c\nfn b() {\n}\nfn d() {}\nfn e() {}\n\
            #[cfg(test)]\nmod tests {\n    /// F\n}\n";

        let lines = Lines::of(&RustFile::new("crates/a/src/b.rs", text));

        assert_eq!(lines, Lines { docs: 2, code: 4 });
        assert_eq!(lines.docs_per_100(), 50);
    }
}

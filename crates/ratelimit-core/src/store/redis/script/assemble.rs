//! Assembles scripts from the sections of `lua/NAME.lua` for each algorithm: inline, limit after limit, or as functions.
//!
//! The module needs nothing but the texts, so `cargo xtask check lua` includes it to check the assembled scripts.

/// Numbers of a fixed state begin with this many bytes of a value: its expiry.
const EXPIRY_BYTES: usize = 8;
/// Bytes of a frame's length, and of the head of a state: the algorithm's code and the grain.
const LENGTH_BYTES: usize = 4;
const HEAD_BYTES: usize = 4;
/// Bytes of a number.
const NUMBER_BYTES: usize = 8;
/// What ends a general script, and leaves a key alone in the unrolled one.
const CORRUPT: &str = "error('corrupt rate limit state')";

/// `lua/check_unrolled.lua` for limits whose algorithms have these `files`, in the order of the policy; or
/// `lua/check_joint_windows.lua` for as many members.
pub(crate) fn unroll(template: &str, files: &[&str]) -> String {
    let limits = (1..).zip(files);
    let limits: Vec<Limit<'_>> = limits
        .map(|(number, file)| Limit {
            file,
            suffix: format!("_{number}"),
        })
        .collect();
    let is_fixed = limits.iter().all(|limit| limit.list("format").is_some());
    let mut script = String::new();
    let mut lines = template.lines();
    while let Some(line) = lines.next() {
        match directive(line) {
            Some(("if", "fixed")) if !is_fixed => {
                lines.by_ref().find(|line| is_end(line));
            }
            Some(("limits", _)) => {
                let block: Vec<&str> = lines.by_ref().take_while(|line| !is_end(line)).collect();
                for limit in &limits {
                    for line in &block {
                        let line = with_lists(line, std::slice::from_ref(limit));
                        limit.expand(&line, &mut script);
                    }
                }
            }
            Some(("if" | "end", _)) => {}
            _ => {
                script.push_str(&with_lists(line, &limits));
                script.push('\n');
            }
        }
    }
    script.replace(CORRUPT, "break")
}

/// `lua/step.lua` for the algorithm `name` with this `file`: its sections as functions. Nothing for an algorithm that
/// has functions only.
pub(crate) fn step(template: &str, name: &str, file: &str) -> String {
    let limit = Limit {
        file,
        suffix: String::new(),
    };
    let mut script = String::new();
    if limit.list("numbers").is_some() {
        for line in template.lines() {
            let line = with_lists(line, std::slice::from_ref(&limit));
            limit.expand(&line.replace("ALGORITHM", name), &mut script);
        }
    }
    script
}

/// The lines of a section. A file without the section adds nothing.
pub(crate) fn section(file: &str, name: &str) -> String {
    let mut text = String::new();
    let mut is_inside = false;
    for line in file.lines() {
        match directive(line) {
            Some(("section", found)) => is_inside = found == name,
            _ if is_inside && !line.is_empty() => {
                text.push_str(line);
                text.push('\n');
            }
            _ => {}
        }
    }
    text
}

/// A limit of a script: the file of its algorithm, and what its names have in place of `_N`.
struct Limit<'a> {
    file: &'a str,
    suffix: String,
}

impl Limit<'_> {
    /// A line for this limit: `-- @each NAME` becomes the section of the file, and `-- @each local NAME` the same behind
    /// `local`.
    fn expand(&self, line: &str, script: &mut String) {
        let Some(("each", name)) = directive(line) else {
            script.push_str(&self.named(line));
            script.push('\n');
            return;
        };
        let (prefix, name) = match name.strip_prefix("local ") {
            Some(name) => ("local ", name),
            None => ("", name),
        };
        script.push_str(prefix);
        script.push_str(&self.named(&section(self.file, name)));
    }

    /// The list that the file has in a line `-- @NAME a_N, b_N`.
    fn list(&self, name: &str) -> Option<String> {
        let mut directives = self.file.lines().filter_map(directive);
        directives.find_map(|(found, rest)| (found == name).then(|| self.named(rest)))
    }

    fn named(&self, text: &str) -> String {
        text.replace("_N", &self.suffix)
    }

    /// Bytes of a state that has a fixed length.
    fn state_bytes(&self) -> usize {
        HEAD_BYTES + NUMBER_BYTES * self.list("format").unwrap_or_default().len()
    }

    /// What stands for this limit in place of a name in capitals, and its format.
    fn part(&self, name: &str) -> (String, String) {
        let list = |name| self.list(name).unwrap_or_default();
        let named = |text: &str| self.named(text);
        let format = format!("d{}", list("format"));
        let numbers = |names: String| {
            let format = "d".repeat(1 + names.split(',').count());
            (format!("{}, {names}", named("at_N")), format)
        };
        match name {
            "ARGUMENTS" => (
                named("shape_N, head_N, limit_N, period_N, rate_N, reserve_N"),
                "dddddd".to_owned(),
            ),
            "EXPIRIES" => (named("expires_N"), "d".to_owned()),
            "SHAPES" => (named("stored_shape_N"), format),
            "STORED" => (
                format!("{}, {}", named("stored_shape_N"), list("stored")),
                format,
            ),
            "WRITTEN" => (format!("{}, {}", named("shape_N"), list("written")), format),
            "USUAL" => {
                let same = named("stored_shape_N == shape_N");
                (format!("{same} and {}", list("usual")), format)
            }
            "STATES" => (self.frame(), format),
            "AFTER" => numbers(list("after")),
            "ROLLED" => {
                let kept = list("kept");
                let rolled = numbers(list("numbers")).0;
                let parts = [rolled, kept].into_iter().filter(|part| !part.is_empty());
                (parts.collect::<Vec<_>>().join(", "), format)
            }
            _ => numbers(list("numbers")),
        }
    }

    /// The expression for the frame of the state.
    fn frame(&self) -> String {
        if let Some(state) = self.list("state") {
            return state;
        }
        let (written, format) = (self.list("written"), self.list("format"));
        let (written, format) = (written.unwrap_or_default(), format.unwrap_or_default());
        let (bytes, head) = (self.state_bytes(), self.named("head_N"));
        let short = format!("pack('<I4I4{format}', {bytes}, {head}, {written})");
        let Some(more) = self.list("more") else {
            return short;
        };
        let bytes = bytes + NUMBER_BYTES;
        let long = format!("pack('<I4I4{format}d', {bytes}, {head}, {written}, {more})");
        format!("({more} > 0 and {long} or {short})")
    }
}

/// The name and the rest of a line `-- @NAME REST`.
fn directive(line: &str) -> Option<(&str, &str)> {
    let rest = line.trim().strip_prefix("-- @")?;
    let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    Some((name, rest.trim()))
}

fn is_end(line: &str) -> bool {
    directive(line) == Some(("end", ""))
}

/// A line of a template with the lists of all limits in place of their names in capitals.
fn with_lists(line: &str, limits: &[Limit<'_>]) -> String {
    let mut line = line.to_owned();
    for (name, separator) in [
        ("ARGUMENTS", ", "),
        ("EXPIRIES", ", "),
        ("SHAPES", ", "),
        ("STORED", ", "),
        ("WRITTEN", ", "),
        ("NUMBERS", ", "),
        ("AFTER", ", "),
        ("ROLLED", ", "),
        ("USUAL", " and "),
        ("STATES", " .. "),
    ] {
        if line.contains(name) {
            let (lists, formats): (Vec<String>, Vec<String>) =
                limits.iter().map(|limit| limit.part(name)).unzip();
            line = line.replace(&format!("FORMAT_{name}"), &formats.concat());
            line = line.replace(name, &lists.join(separator));
        }
    }
    if line.contains("VALUE_BYTES") {
        let frames = limits
            .iter()
            .map(|limit| LENGTH_BYTES + limit.state_bytes());
        let bytes = EXPIRY_BYTES + frames.sum::<usize>();
        line = line.replace("VALUE_BYTES", &bytes.to_string());
    }
    line.replace("LIMIT_COUNT", &limits.len().to_string())
}

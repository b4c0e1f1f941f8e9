//! Assembles `lua/check_unrolled.lua` and `lua/check_joint_windows.lua`: the text of one limit after another, without
//! loops and functions.
//!
//! The module needs nothing but the texts, so `cargo xtask check lua` includes it to check an assembled script.

/// Numbers of a fixed state begin with this many bytes of a value: its expiry.
const EXPIRY_BYTES: usize = 8;
/// Bytes of a number.
const NUMBER_BYTES: usize = 8;

/// The script for limits whose files are `fragments`, in the order of the policy.
pub(crate) fn assemble(template: &str, fragments: &[&str]) -> String {
    let is_fixed = fragments
        .iter()
        .all(|fragment| list(fragment, "stored").is_some());
    let mut script = String::new();
    let mut is_kept = true;
    for line in template.lines() {
        match directive(line) {
            Some(("if", "fixed")) => is_kept = is_fixed,
            Some(("end", _)) => is_kept = true,
            Some(("each", name)) if is_kept => {
                let (prefix, name) = match name.strip_prefix("local ") {
                    Some(name) => ("local ", name),
                    None => ("", name),
                };
                for (number, fragment) in (1..).zip(fragments) {
                    script.push_str(&numbered(&section(fragment, name, prefix), number));
                }
            }
            _ if is_kept => {
                script.push_str(&with_lists(line, fragments));
                script.push('\n');
            }
            _ => {}
        }
    }
    script
}

/// The name and the rest of a line `-- @NAME REST`.
fn directive(line: &str) -> Option<(&str, &str)> {
    let rest = line.trim().strip_prefix("-- @")?;
    let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    Some((name, rest.trim()))
}

/// The list of names that a fragment has in a line `-- @NAME a_N, b_N`.
fn list<'a>(fragment: &'a str, name: &str) -> Option<&'a str> {
    let mut directives = fragment.lines().filter_map(directive);
    directives.find_map(|(found, rest)| (found == name).then_some(rest))
}

/// The lines of a section, the first of which gets the prefix. A fragment without the section adds nothing.
fn section(fragment: &str, name: &str, prefix: &str) -> String {
    let mut text = String::new();
    let mut is_inside = false;
    for line in fragment.lines() {
        match directive(line) {
            Some(("section", found)) => is_inside = found == name,
            _ if is_inside && !line.is_empty() => {
                text.push_str(if text.is_empty() { prefix } else { "" });
                text.push_str(line);
                text.push('\n');
            }
            _ => {}
        }
    }
    text
}

/// The text of a limit, whose names end with its number.
fn numbered(text: &str, number: usize) -> String {
    text.replace("_N", &format!("_{number}"))
}

/// A line of the template with the lists of all limits in place of their names in capitals.
fn with_lists(line: &str, fragments: &[&str]) -> String {
    let mut line = line.to_owned();
    for name in [
        "key_names",
        "arguments",
        "stored",
        "written",
        "numbers",
        "after",
    ] {
        let capitals = name.to_uppercase();
        if !line.contains(&capitals) {
            continue;
        }
        let lists = (1..).zip(fragments).filter_map(|(number, fragment)| {
            list(fragment, name).map(|list| numbered(list, number))
        });
        let list = lists.collect::<Vec<_>>().join(", ");
        let format = "d".repeat(count(&list));
        line = line.replace(&format!("FORMAT_{capitals}"), &format);
        line = line.replace(&capitals, &list);
    }
    if line.contains("VALUE_BYTES") {
        let numbers = fragments
            .iter()
            .filter_map(|it| list(it, "written"))
            .map(count);
        let bytes = EXPIRY_BYTES + NUMBER_BYTES * numbers.sum::<usize>();
        line = line.replace("VALUE_BYTES", &bytes.to_string());
    }
    line = line.replace("LIMIT_COUNT", &fragments.len().to_string());
    if line.contains("STATES") {
        let states = (1..).zip(fragments).map(|(number, fragment)| {
            let state = list(fragment, "state").unwrap_or("state_N");
            numbered(state, number)
        });
        let states: Vec<String> = states.collect();
        line = line.replace("STATES", &states.join(" .. "));
    }
    line
}

/// How many names a list has.
fn count(list: &str) -> usize {
    list.split(',').count()
}

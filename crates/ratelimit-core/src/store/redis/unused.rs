//! Scripts without what they do not use.

/// The same script without the functions that it does not use: a server makes all anew in each call.
pub(super) fn without_unused_functions(text: &str) -> String {
    let blocks = blocks(text);
    let mut used: Vec<bool> = blocks.iter().map(|(name, _)| name.is_none()).collect();
    let is_called = |name: &str, used: &[bool]| {
        let callers = blocks.iter().zip(used).filter(|(_, used)| **used);
        callers
            .into_iter()
            .any(|((_, text), _)| words(text).any(|word| word == name))
    };
    loop {
        let newly = blocks.iter().zip(&used).position(|((name, _), is_used)| {
            !is_used && name.is_some_and(|name| is_called(name, &used))
        });
        let Some(index) = newly else { break };
        used[index] = true;
    }
    let kept = blocks.iter().zip(used).filter(|(_, used)| *used);
    kept.map(|((_, text), _)| text.as_str()).collect()
}

/// The functions of a script, each by its name, and the lines between them.
fn blocks(text: &str) -> Vec<(Option<&str>, String)> {
    let mut blocks: Vec<(Option<&str>, String)> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        let name = line
            .strip_prefix("local function ")
            .and_then(|rest| words(rest).next());
        if name.is_some() {
            is_inside = true;
            blocks.push((name, String::new()));
        } else if !is_inside {
            blocks.push((None, String::new()));
        }
        if let Some((_, block)) = blocks.last_mut() {
            block.push_str(line);
            block.push('\n');
        }
        is_inside = is_inside && line != "end";
    }
    blocks
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_functions_that_are_used_stay() {
        let text = "local a = 1\nlocal function g(x)\n  return x\nend\nlocal function f(x)\n  return g(x)\nend\n\
                    local function h()\n  return f\nend\nreturn f(a)\n";

        let kept = without_unused_functions(text);

        assert!(kept.contains("function g") && kept.contains("function f"));
        assert!(!kept.contains("function h"));
        assert!(kept.starts_with("local a = 1\n") && kept.ends_with("return f(a)\n"));
    }
}

//! Other targets for the links of a page.

/// The new form of a link.
pub(super) enum Rewritten {
    Unchanged,
    Target(String),
    /// The text of the link alone, without a target.
    Text,
}

/// The page with each link outside of code in the form that `form` returns for its target.
pub(super) fn rewrite(text: &str, form: impl Fn(&str) -> Rewritten) -> String {
    let mut is_fenced = false;
    let mut rewritten = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        if is_fenced || is_fence {
            rewritten.push_str(line);
        } else {
            rewritten.push_str(&rewrite_line(line, &form));
        }
    }
    rewritten
}

/// Replaces each `[text](target)`; a target in code stays.
fn rewrite_line(line: &str, form: &impl Fn(&str) -> Rewritten) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        let end = after.find([')', ' ']).unwrap_or(after.len());
        let close = after.find(')').map_or(after.len(), |at| at + 1);
        let is_code = text.matches('`').count() % 2 == 1;
        match form(&after[..end]) {
            Rewritten::Target(target) if !is_code => {
                text.extend(["](", &target]);
                rest = &after[end..];
            }
            Rewritten::Text if !is_code => {
                if let Some(open) = text.rfind('[') {
                    text.remove(open);
                    if text[..open].ends_with('!') {
                        text.remove(open - 1);
                    }
                }
                rest = &after[close..];
            }
            _ => {
                text.push_str("](");
                rest = after;
            }
        }
    }
    text + rest
}

//! Other targets for the links of a page.

/// The page with `address` of each link's target, outside of code. It gets the target and whether the link is an image,
/// and returns `None` where the target stays.
pub(crate) fn rewrite(text: &str, address: impl Fn(&str, bool) -> Option<String>) -> String {
    let address =
        |target: &str, is_image| address(target, is_image).unwrap_or_else(|| target.to_owned());
    let mut is_fenced = false;
    let mut rewritten = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        if is_fenced || is_fence {
            rewritten.push_str(line);
        } else {
            rewritten.push_str(&rewrite_line(line, &address));
        }
    }
    rewritten
}

fn rewrite_line(line: &str, address: &impl Fn(&str, bool) -> String) -> String {
    if let Some((name, rest)) = line.split_once("]: ")
        && name.starts_with('[')
        && !rest.contains(' ')
    {
        let target = rest.trim_end();
        return format!(
            "{name}]: {}{}",
            address(target, false),
            &rest[target.len()..]
        );
    }
    // Parts with an odd index are code.
    let parts = line.split('`').enumerate().map(|(index, part)| {
        if index % 2 == 1 {
            part.to_owned()
        } else {
            rewrite_prose(part, address)
        }
    });
    parts.collect::<Vec<_>>().join("`")
}

fn rewrite_prose(prose: &str, address: &impl Fn(&str, bool) -> String) -> String {
    let mut text = String::new();
    let mut rest = prose;
    while let Some((before, after)) = rest.split_once("](") {
        let end = after.find([')', ' ']).unwrap_or(after.len());
        let is_image = before
            .rfind('[')
            .is_some_and(|at| before[..at].ends_with('!'));
        text.extend([before, "](", &address(&after[..end], is_image)]);
        rest = &after[end..];
    }
    text + rest
}

//! The anchors of a page.

use std::collections::BTreeMap;

/// The anchors of a page, as GitHub makes them: a heading that is repeated gets a number.
pub(in crate::check) fn anchors(text: &str) -> Vec<String> {
    let mut anchors = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (_, line) in lines_outside_fences(text) {
        if let Some((_, rest)) = line
            .split_once("<a id=\"")
            .or(line.split_once("<a name=\""))
        {
            anchors.extend(rest.split('"').next().map(str::to_owned));
        }
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let anchor = anchor_of(heading.trim());
        let count = seen.entry(anchor.clone()).or_default();
        anchors.push(match *count {
            0 => anchor,
            number => format!("{anchor}-{number}"),
        });
        *count += 1;
    }
    anchors
}

pub(in crate::check) fn anchor_of(heading: &str) -> String {
    // The address of a link in a heading is not shown.
    let mut shown = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        shown.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    shown.push_str(rest);
    let kept = shown.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c => c.is_alphanumeric().then_some(c),
    });
    kept.flat_map(char::to_lowercase).collect()
}

pub(in crate::check) fn lines_outside_fences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    })
}

//! Paths below `docs/` that other files than pages name: in comments, errors, log lines and settings.

const ENDINGS: [&str; 8] = ["md", "yml", "yaml", "json", "svg", "toml", "txt", "webp"];

/// The paths of files below `docs/` in a text, with the anchor behind `#`, and their lines.
pub(super) fn paths(text: &str) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for (at, _) in line.match_indices("docs/") {
            let before = line[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || ['_', '-', '.'].contains(&c)) {
                continue;
            }
            let rest = &line[at..];
            let end = rest.find(|c: char| !is_path(c)).unwrap_or(rest.len());
            let path = rest[..end].trim_end_matches('.');
            let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
            if !ENDINGS.contains(&ending) {
                continue;
            }
            let anchor = rest[end..].strip_prefix('#').unwrap_or_default();
            let length = anchor.find(|c: char| !is_anchor(c));
            // A placeholder is filled in later and cannot be checked.
            let is_whole = length.is_none_or(|length| !anchor[length..].starts_with('{'));
            let anchor = &anchor[..length.unwrap_or(anchor.len())];
            paths.push((
                number,
                if anchor.is_empty() || !is_whole {
                    path.to_owned()
                } else {
                    format!("{path}#{anchor}")
                },
            ));
        }
    }
    paths
}

fn is_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || ['_', '-', '.', '/'].contains(&c)
}

fn is_anchor(c: char) -> bool {
    c.is_alphanumeric() || ['_', '-'].contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ends_where_the_sentence_goes_on() {
        let text = "// See docs/a/b.md.\n\"docs/c.md#x-y: {}\" https://e.org/blob/main/docs/d.md#z)\n\
            format!(\"docs/e.md#{code}\") ../../docs/f.svg docs/folder https://docs.rs/x my-docs/g.md";

        let found: Vec<String> = paths(text).into_iter().map(|(_, path)| path).collect();

        assert_eq!(
            found,
            [
                "docs/a/b.md",
                "docs/c.md#x-y",
                "docs/d.md#z",
                "docs/e.md",
                "docs/f.svg"
            ]
        );
    }
}

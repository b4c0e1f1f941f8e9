//! The code blocks of a page.

/// A block between two lines of backticks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fence {
    /// Line of the opening backticks.
    pub(super) line: usize,
    /// First word behind the backticks.
    pub(super) language: String,
    /// Further words: `untested`, `no_run`.
    pub(super) options: Vec<String>,
    /// Reason in `<!-- untested: REASON -->` on the line before.
    pub(super) reason: Option<String>,
    pub(super) text: String,
}

impl Fence {
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|other| other == option)
    }
}

/// The fenced blocks of a page, and the first lines of indented ones outside lists.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub(super) fenced: Vec<Fence>,
    pub(super) indented: Vec<usize>,
}

impl Blocks {
    pub(super) fn of(page: &str) -> Blocks {
        let mut blocks = Blocks::default();
        let mut open: Option<(usize, Fence)> = None;
        let mut last = "";
        let mut is_list = false;
        for (number, line) in (1..).zip(page.lines()) {
            let trimmed = line.trim_start();
            let ticks = trimmed.len() - trimmed.trim_start_matches('`').len();
            if let Some((length, fence)) = &mut open {
                if ticks >= *length && trimmed.trim_end().len() == ticks {
                    blocks.fenced.extend(open.take().map(|(_, fence)| fence));
                } else {
                    fence.text.extend([line, "\n"]);
                }
                last = line;
                continue;
            }
            if ticks >= 3 {
                open = Some((ticks, opened(number, &trimmed[ticks..], last)));
            } else if line.starts_with("    ") && !is_list && !trimmed.is_empty() {
                if last.trim().is_empty() {
                    blocks.indented.push(number);
                }
            } else if is_item(trimmed) {
                is_list = true;
            } else if !line.starts_with(' ') && !line.is_empty() {
                is_list = false;
            }
            if !trimmed.is_empty() {
                last = line;
            } else if !last.starts_with("<!--") {
                last = "";
            }
        }
        blocks.fenced.extend(open.map(|(_, fence)| fence));
        blocks
    }
}

fn opened(line: usize, info: &str, before: &str) -> Fence {
    let mut words = info.split([',', ' ']).map(str::trim);
    let reason = before.trim().strip_prefix("<!-- untested:");
    let reason = reason.and_then(|reason| reason.strip_suffix("-->"));
    Fence {
        line,
        language: words.next().unwrap_or_default().to_owned(),
        options: words
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect(),
        reason: reason.map(|reason| reason.trim().to_owned()),
        text: String::new(),
    }
}

fn is_item(line: &str) -> bool {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("- ")
        || line.starts_with("* ")
        || (number.len() < line.len() && number.starts_with(". "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_has_its_language_options_and_reason() {
        let page = "a\n\n<!-- untested: needs a cluster -->\n```sh untested\nb\n```\n\n````rust,no_run\n```\n````\n";

        let blocks = Blocks::of(page);

        let [shell, rust] = &blocks.fenced[..] else {
            panic!("{blocks:?}");
        };
        assert_eq!((shell.line, shell.language.as_str()), (4, "sh"));
        assert!(shell.has("untested"));
        assert_eq!(shell.reason.as_deref(), Some("needs a cluster"));
        assert_eq!(shell.text, "b\n");
        assert!(rust.has("no_run"));
        assert_eq!(rust.reason, None);
        assert_eq!(rust.text, "```\n");
    }

    #[test]
    fn indented_code_is_found_outside_lists_only() {
        let page = "a\n    goes on\n\n    code\n    more\n\n- item\n\n      code of it\n\nb\n";

        assert_eq!(Blocks::of(page).indented, [4]);
    }
}

//! A fenced code block.

/// A block of a page.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Block {
    /// Line of the page on which it opens.
    pub line: usize,
    /// First word behind the backticks.
    pub language: String,
    /// Whether no test reads it.
    pub is_untested: bool,
    /// Whether no doctest compiles it.
    pub is_ignored: bool,
    /// The text between the backticks.
    pub text: String,
    /// Commands of `<!-- typed: COMMAND -->` on the lines before.
    pub hidden: Vec<String>,
    /// Whether only empty lines separate it from the block before.
    pub follows: bool,
}

impl Block {
    /// The path of the file that it shows: the comment in its first line.
    pub fn file(&self) -> Option<&str> {
        let path = self.text.lines().next()?.strip_prefix("# ")?.trim();
        let (_, extension) = path.rsplit_once('.')?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        let is_path = path.chars().all(is_name) && !extension.is_empty() && !path.contains("..");
        let is_config = ["toml", "yaml", "envoy", "json", "text"].contains(&self.language.as_str());
        (is_path && is_config).then_some(path)
    }
}

pub(super) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut hidden = Vec::new();
    let mut follows = false;
    let mut lines = (1..).zip(page.lines());
    while let Some((line, text)) = lines.next() {
        let opening = text.trim_start();
        let indent = text.len() - opening.len();
        let info = opening.trim_start_matches('`');
        let ticks = &opening[..opening.len() - info.len()];
        if ticks.len() < 3 {
            if let Some(command) = comment(opening, "typed:") {
                hidden.push(command.to_owned());
            } else if !opening.is_empty() && comment(opening, "untested:").is_none() {
                hidden.clear();
                follows = false;
            }
            continue;
        }
        let inside = lines.by_ref().take_while(|(_, line)| line.trim() != ticks);
        let inside = inside.map(|(_, line)| {
            let begin = line.len() - line.trim_start().len();
            format!("{}\n", &line[begin.min(indent)..])
        });
        let text = inside.collect();
        let mut words = info.split([',', ' ']);
        let language = words.next().unwrap_or_default().to_owned();
        let options: Vec<&str> = words.collect();
        blocks.push(Block {
            line,
            language,
            is_untested: options.contains(&"untested"),
            is_ignored: options.contains(&"ignore"),
            text,
            hidden: std::mem::take(&mut hidden),
            follows: std::mem::replace(&mut follows, true),
        });
    }
    blocks
}

fn comment<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let text = line.trim().strip_prefix("<!--")?.strip_suffix("-->")?;
    text.trim().strip_prefix(name).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_knows_its_file_its_hidden_commands_and_the_block_before() {
        let page = "<!-- typed: a -->\n<!-- typed: b -->\n\n```sh\nc\n```\n\n```text\nd\n```\n\
            words\n```toml untested\n# conf/x.toml\n```\n- item\n  ```sh\n  e\n  ```\n";

        let found = blocks(page);

        let hidden: Vec<usize> = found.iter().map(|block| block.hidden.len()).collect();
        assert_eq!(hidden, [2, 0, 0, 0]);
        let follows: Vec<bool> = found.iter().map(|block| block.follows).collect();
        assert_eq!(follows, [false, true, false, false]);
        assert_eq!(found[2].file(), Some("conf/x.toml"));
        assert!(found[2].is_untested && !found[0].is_untested);
        assert_eq!((found[3].line, found[3].text.as_str()), (16, "e\n"));
    }
}

//! YAML as a tree.
//!
//! Only the plain part of YAML 1.2 is read: one document of tables, lists and values. Aliases and tags are
//! rejected, because a small file with aliases can expand to a huge tree.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};

use crate::policy_file::{
    code::DiagnosticCode,
    diagnostic::Diagnostics,
    tree::{Entry, MAX_DEPTH, Node, Value},
};

/// Parses a YAML text. The result is `None` after a diagnostic.
pub(crate) fn tree(text: &str, diagnostics: &mut Diagnostics) -> Option<Node> {
    // The parser treats the byte order mark that some editors write as part of the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let last = last_line(text);
    let mut builder = TreeBuilder::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let taken = event
            .map_err(|error| YamlError::syntax(&error, text))
            .and_then(|(event, span)| builder.handle(event, span.start.line().min(last)));
        if let Err(YamlError {
            code,
            line,
            message,
        }) = taken
        {
            diagnostics.add(code, line.min(last), message);
            return None;
        }
    }
    let empty = || Node {
        line: 1,
        value: Value::Table(Vec::new()),
    };
    Some(builder.root.filter(is_not_null).unwrap_or_else(empty))
}

/// Whether the root is a value. A file of comments has a null root.
fn is_not_null(root: &Node) -> bool {
    root.value != Value::Other(NOTHING)
}

/// The number of the last line. The parser reports errors at the end one line later.
fn last_line(text: &str) -> usize {
    let breaks = text.trim_end().replace("\r\n", "\n");
    breaks.matches(['\n', '\r']).count() + 1
}

/// The kind of a null value in messages.
const NOTHING: &str = "nothing";

/// An error that ends the parsing, and its line.
struct YamlError {
    code: DiagnosticCode,
    line: usize,
    message: String,
}

impl YamlError {
    /// An error of the parser.
    fn syntax(error: &ScanError, text: &str) -> YamlError {
        let (code, line) = (DiagnosticCode::Syntax, error.marker().line());
        match line_with_tab(error, text) {
            Some(line) => YamlError {
                code,
                line,
                message: "a tab indents this line: expected spaces".to_owned(),
            },
            None => YamlError {
                code,
                line,
                message: error.info().to_owned(),
            },
        }
    }

    /// YAML that is valid and not supported.
    fn unsupported(line: usize, message: &str) -> YamlError {
        YamlError {
            code: DiagnosticCode::UnsupportedYaml,
            line,
            message: message.to_owned(),
        }
    }

    /// Nesting beyond [`MAX_DEPTH`].
    fn too_deep(line: usize) -> YamlError {
        YamlError {
            code: DiagnosticCode::TooDeep,
            line,
            message: "lists and tables stand in each other too deep".to_owned(),
        }
    }
}

/// The line that a tab indents, if that is the error. The parser names the line of the value before it.
fn line_with_tab(error: &ScanError, text: &str) -> Option<usize> {
    let is_indented_by_tab = |line: &str| {
        let rest = line.trim_start_matches([' ', '\t']);
        !rest.is_empty() && line[..line.len() - rest.len()].contains('\t')
    };
    let mut lines = text
        .lines()
        .enumerate()
        .skip(error.marker().line().checked_sub(1)?);
    // Without a word about tabs the parser means its own line.
    let max = if error.info().contains("tab") {
        usize::MAX
    } else {
        1
    };
    let (index, _) = lines
        .by_ref()
        .take(max)
        .find(|(_, line)| is_indented_by_tab(line))?;
    Some(index + 1)
}

/// Builds the tree from the events of the parser.
#[derive(Default)]
struct TreeBuilder {
    root: Option<Node>,
    /// Lists and tables that are not closed yet, outermost first.
    open: Vec<OpenNode>,
    documents: usize,
}

/// A list or table that is not closed yet.
struct OpenNode {
    line: usize,
    kind: OpenKind,
}

/// The content of a list or table so far.
enum OpenKind {
    List(Vec<Node>),
    Table {
        entries: Vec<Entry>,
        /// The name and its line, if its value comes next.
        name: Option<(usize, String)>,
    },
}

impl TreeBuilder {
    /// Handles one event of the parser.
    fn handle(&mut self, event: Event<'_>, line: usize) -> Result<(), YamlError> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                match self.documents {
                    1 => Ok(()),
                    _ => Err(YamlError::unsupported(line, "a file has one document")),
                }
            }
            Event::Alias(_) => Err(YamlError::unsupported(
                line,
                "aliases are not followed: write the value again",
            )),
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => Err(YamlError::unsupported(
                line,
                "tags are not read: write the value without",
            )),
            Event::Scalar(text, style, _, None) => {
                self.scalar(&text, style, line);
                Ok(())
            }
            Event::SequenceStart(_, None) => self.open(line, OpenKind::List(Vec::new())),
            Event::MappingStart(_, None) => {
                let (entries, name) = (Vec::new(), None);
                self.open(line, OpenKind::Table { entries, name })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                self.close();
                Ok(())
            }
        }
    }

    /// Opens a list or table inside the innermost one.
    fn open(&mut self, line: usize, kind: OpenKind) -> Result<(), YamlError> {
        if self.expects_a_name() {
            let message = "a name is a text, no list and no table";
            return Err(YamlError::unsupported(line, message));
        }
        if self.open.len() == MAX_DEPTH {
            return Err(YamlError::too_deep(line));
        }
        self.open.push(OpenNode { line, kind });
        Ok(())
    }

    /// Whether the next scalar is the name of a table's entry.
    fn expects_a_name(&self) -> bool {
        let innermost = self.open.last().map(|open| &open.kind);
        matches!(innermost, Some(OpenKind::Table { name: None, .. }))
    }

    /// Handles a scalar: a name if the innermost table expects one, else a value.
    fn scalar(&mut self, text: &str, style: ScalarStyle, line: usize) {
        if let Some(OpenNode {
            kind: OpenKind::Table { name, .. },
            ..
        }) = self.open.last_mut()
            && name.is_none()
        {
            *name = Some((line, text.to_owned()));
            return;
        }
        let value = match style {
            ScalarStyle::Plain => plain(text),
            _ => Value::Text(text.to_owned()),
        };
        self.put(Node { line, value });
    }

    /// Closes the innermost list or table.
    fn close(&mut self) {
        let Some(OpenNode { line, kind }) = self.open.pop() else {
            return;
        };
        let value = match kind {
            OpenKind::List(nodes) => Value::List(nodes),
            OpenKind::Table { entries, .. } => Value::Table(entries),
        };
        self.put(Node { line, value });
    }

    /// Adds a node to the innermost list or table, or makes it the root.
    fn put(&mut self, node: Node) {
        match self.open.last_mut().map(|open| &mut open.kind) {
            None => self.root = Some(node),
            Some(OpenKind::List(nodes)) => nodes.push(node),
            Some(OpenKind::Table { entries, name }) => {
                if let Some((line, name)) = name.take() {
                    entries.push(Entry { line, name, node });
                }
            }
        }
    }
}

/// The value of a scalar without quotes, by the core schema of YAML 1.2.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Other(NOTHING),
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let (digits, radix) = match text.get(..2) {
        Some("0x") => (&text[2..], 16),
        Some("0o") => (&text[2..], 8),
        _ => (text.strip_prefix(['-', '+']).unwrap_or(text), 10),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return if is_fraction(text) {
            Value::Other("a number with a fraction")
        } else {
            Value::Text(text.to_owned())
        };
    }
    let signed = if radix == 10 { text } else { digits };
    match i64::from_str_radix(signed, radix) {
        Ok(number) => Value::Integer(number),
        Err(_) => Value::Other("a number of 2^63 or more"),
    }
}

/// Whether a text is a number that is not whole.
fn is_fraction(text: &str) -> bool {
    let numeric = |letter: char| letter.is_ascii_digit() || "+-.eE".contains(letter);
    text.contains(|letter: char| letter.is_ascii_digit())
        && text.chars().all(numeric)
        && text.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tab_is_reported_on_its_line() {
        for (text, line) in [
            ("policy:\n\tlogin: 5/min\n", 2),
            ("policy:\n  a: 1/s\n\tb: 2/s\n", 3),
            ("policy:\n  a: 1/s\n  \tb: 2/s\n", 3),
            (
                "policy:\n  a:\n    limits: 1/s\n\n\n\t shadow: true\n  b: 1/s\n",
                6,
            ),
            ("a: 1\n\n# x\n\tb: 2\nc: 3\n", 4),
        ] {
            let mut diagnostics = Diagnostics::new();
            assert_eq!(tree(text, &mut diagnostics), None, "{text:?}");
            let found = diagnostics.sorted();
            assert_eq!(found[0].line, line, "{text:?}");
            assert!(found[0].message.contains("a tab indents"), "{found:?}");
        }
    }
}

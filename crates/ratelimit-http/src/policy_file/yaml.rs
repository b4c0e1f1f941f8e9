//! YAML as a tree: tables, lists and plain values, and nothing that makes a small file large.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};

use crate::policy_file::{
    code::DiagnosticCode,
    diagnostic::Diagnostics,
    tree::{DEEPEST, Entry, Node, Value},
};

/// The tree of a YAML text; nothing when it is none.
pub(crate) fn tree(text: &str, diagnostics: &mut Diagnostics) -> Option<Node> {
    // The parser takes the mark that some editors put before a text for a part of it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let last = last_line(text);
    let mut tree = Tree::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let taken = event
            .map_err(|why| Refused::syntax(&why))
            .and_then(|(event, span)| tree.take(event, span.start.line().min(last)));
        if let Err(Refused {
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
    Some(tree.root.filter(says_something).unwrap_or_else(empty))
}

fn says_something(root: &Node) -> bool {
    root.value != Value::Other(NOTHING)
}

/// The parser sees a line more at the end than there is.
fn last_line(text: &str) -> usize {
    let breaks = text.trim_end().replace("\r\n", "\n");
    breaks.matches(['\n', '\r']).count() + 1
}

const NOTHING: &str = "nothing";

/// Why a text is refused, and where.
struct Refused {
    code: DiagnosticCode,
    line: usize,
    message: String,
}

impl Refused {
    fn syntax(why: &ScanError) -> Refused {
        Refused {
            code: DiagnosticCode::Syntax,
            line: why.marker().line(),
            message: why.info().to_owned(),
        }
    }

    fn unsupported(line: usize, message: &str) -> Refused {
        Refused {
            code: DiagnosticCode::UnsupportedYaml,
            line,
            message: message.to_owned(),
        }
    }

    fn too_deep(line: usize) -> Refused {
        Refused {
            code: DiagnosticCode::TooDeep,
            line,
            message: "lists and tables stand in each other too deep".to_owned(),
        }
    }
}

/// What has been read, and the lists and tables that are still open.
#[derive(Default)]
struct Tree {
    root: Option<Node>,
    open: Vec<Open>,
    documents: usize,
}

struct Open {
    line: usize,
    kind: Kind,
}

enum Kind {
    List(Vec<Node>),
    Table {
        entries: Vec<Entry>,
        /// The name whose value comes next.
        name: Option<(usize, String)>,
    },
}

impl Tree {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), Refused> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                match self.documents {
                    1 => Ok(()),
                    _ => Err(Refused::unsupported(line, "a file has one document")),
                }
            }
            Event::Alias(_) => Err(Refused::unsupported(
                line,
                "aliases are not followed: write the value again",
            )),
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => Err(Refused::unsupported(
                line,
                "tags are not read: write the value without",
            )),
            Event::Scalar(text, style, _, None) => {
                self.scalar(&text, style, line);
                Ok(())
            }
            Event::SequenceStart(_, None) => self.open(line, Kind::List(Vec::new())),
            Event::MappingStart(_, None) => {
                let (entries, name) = (Vec::new(), None);
                self.open(line, Kind::Table { entries, name })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                self.close();
                Ok(())
            }
        }
    }

    fn open(&mut self, line: usize, kind: Kind) -> Result<(), Refused> {
        if self.expects_a_name() {
            let message = "a name is a text, no list and no table";
            return Err(Refused::unsupported(line, message));
        }
        if self.open.len() == DEEPEST {
            return Err(Refused::too_deep(line));
        }
        self.open.push(Open { line, kind });
        Ok(())
    }

    fn expects_a_name(&self) -> bool {
        let innermost = self.open.last().map(|open| &open.kind);
        matches!(innermost, Some(Kind::Table { name: None, .. }))
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, line: usize) {
        if let Some(Open {
            kind: Kind::Table { name, .. },
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

    fn close(&mut self) {
        let Some(Open { line, kind }) = self.open.pop() else {
            return;
        };
        let value = match kind {
            Kind::List(nodes) => Value::List(nodes),
            Kind::Table { entries, .. } => Value::Table(entries),
        };
        self.put(Node { line, value });
    }

    fn put(&mut self, node: Node) {
        match self.open.last_mut().map(|open| &mut open.kind) {
            None => self.root = Some(node),
            Some(Kind::List(nodes)) => nodes.push(node),
            Some(Kind::Table { entries, name }) => {
                if let Some((line, name)) = name.take() {
                    entries.push(Entry { line, name, node });
                }
            }
        }
    }
}

/// What a word without quotes means, by the core schema of YAML 1.2.
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
        return if looks_like_a_fraction(text) {
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

fn looks_like_a_fraction(text: &str) -> bool {
    let numeric = |letter: char| letter.is_ascii_digit() || "+-.eE".contains(letter);
    text.contains(|letter: char| letter.is_ascii_digit())
        && text.chars().all(numeric)
        && text.parse::<f64>().is_ok()
}

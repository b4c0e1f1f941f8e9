//! YAML as a tree, with aliases expanded and merge keys applied.
//!
//! Only the first document of a text is read. Anchors, aliases and merge keys are expanded up to a number of nodes,
//! because a small text with aliases can expand to a huge tree.

use std::collections::HashMap;

use ratelimit_http::policy_file::{DiagnosticCode, Diagnostics};
use saphyr_parser::{Event, Parser, ScalarStyle};

/// The maximum number of nodes after expansion.
const MAX_NODES: usize = 1_000_000;
/// The maximum nesting of lists and maps.
const MAX_NESTING: usize = 64;
/// The name whose value is merged into its map.
const MERGE: &str = "<<";

/// A value and the line on which it begins.
#[derive(Clone, Debug)]
pub(super) struct YamlNode {
    pub(super) line: usize,
    pub(super) value: YamlValue,
}

/// A value. Scalars keep their text, because its type depends on the field.
#[derive(Clone, Debug)]
pub(super) enum YamlValue {
    /// A scalar without quotes.
    Plain(String),
    /// A scalar in quotes, or a block: always a text.
    Quoted(String),
    List(Vec<YamlNode>),
    Map(Vec<YamlEntry>),
}

/// A named value of a map. A name can occur twice.
#[derive(Clone, Debug)]
pub(super) struct YamlEntry {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) node: YamlNode,
}

/// Parses the first document of a text. The result is `None` after a diagnostic, or if the text is empty.
pub(super) fn parse(text: &str, diagnostics: &mut Diagnostics) -> Option<YamlNode> {
    // The parser treats the byte order mark that some editors write as part of the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let last_line = text.trim_end().lines().count().max(1);
    let mut builder = TreeBuilder::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let handled = match event {
            Ok((Event::DocumentEnd, _)) => break,
            Ok((event, span)) => builder.handle(event, span.start.line().clamp(1, last_line)),
            Err(error) => Err(YamlError {
                code: DiagnosticCode::Syntax,
                line: error.marker().line().clamp(1, last_line),
                message: error.info().to_owned(),
            }),
        };
        if let Err(error) = handled {
            diagnostics.add(error.code, error.line, error.message);
            return None;
        }
    }
    builder.root
}

/// An error that ends the parsing.
struct YamlError {
    code: DiagnosticCode,
    line: usize,
    message: String,
}

impl YamlError {
    /// YAML that is valid and not supported.
    fn unsupported(line: usize, message: impl Into<String>) -> YamlError {
        YamlError {
            code: DiagnosticCode::UnsupportedYaml,
            line,
            message: message.into(),
        }
    }
}

/// Builds the tree from the events of the parser.
#[derive(Default)]
struct TreeBuilder {
    root: Option<YamlNode>,
    /// Lists and maps that are not closed yet, outermost first.
    open: Vec<OpenNode>,
    /// The complete nodes with an anchor.
    anchors: HashMap<usize, YamlNode>,
    /// The nodes so far, with those of expanded aliases.
    nodes: usize,
}

/// A list or map that is not closed yet.
struct OpenNode {
    line: usize,
    anchor: usize,
    value: YamlValue,
    /// The name and its line, if the value of an entry comes next.
    name: Option<(usize, String)>,
}

impl TreeBuilder {
    /// Handles one event of the parser.
    fn handle(&mut self, event: Event<'_>, line: usize) -> Result<(), YamlError> {
        match event {
            Event::Scalar(text, style, anchor, None) => {
                let value = match style {
                    ScalarStyle::Plain => YamlValue::Plain(text.into_owned()),
                    _ => YamlValue::Quoted(text.into_owned()),
                };
                self.put(YamlNode { line, value }, anchor, 1)
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(node) => {
                    let count = node.count();
                    self.put(YamlNode { line, ..node }, 0, count)
                }
                None => Err(YamlError::unsupported(
                    line,
                    "an alias refers to a complete value before it",
                )),
            },
            Event::SequenceStart(anchor, None) => {
                self.open(line, anchor, YamlValue::List(Vec::new()))
            }
            Event::MappingStart(anchor, None) => {
                self.open(line, anchor, YamlValue::Map(Vec::new()))
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::MappingStart(_, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::Scalar(_, _, _, Some(_)) => {
                let message = "tags are not read: write the value without";
                Err(YamlError::unsupported(line, message))
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    /// Opens a list or map inside the innermost one.
    fn open(&mut self, line: usize, anchor: usize, value: YamlValue) -> Result<(), YamlError> {
        if self.open.len() == MAX_NESTING {
            return Err(YamlError {
                code: DiagnosticCode::TooDeep,
                line,
                message: format!("lists and maps are nested deeper than {MAX_NESTING}"),
            });
        }
        self.open.push(OpenNode {
            line,
            anchor,
            value,
            name: None,
        });
        Ok(())
    }

    /// Closes the innermost list or map.
    fn close(&mut self) -> Result<(), YamlError> {
        let Some(OpenNode {
            line,
            anchor,
            mut value,
            ..
        }) = self.open.pop()
        else {
            return Ok(());
        };
        if let YamlValue::Map(entries) = &mut value {
            *entries = merged(std::mem::take(entries))?;
        }
        self.put(YamlNode { line, value }, anchor, 1)
    }

    /// Adds a complete node to the innermost list or map, or makes it the root. `count` is the number of nodes that
    /// were not counted before.
    fn put(&mut self, node: YamlNode, anchor: usize, count: usize) -> Result<(), YamlError> {
        let line = node.line;
        self.nodes += count;
        if self.nodes > MAX_NODES {
            let message = format!("the file has more than {MAX_NODES} values, with its aliases");
            return Err(YamlError::unsupported(line, message));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match (&mut parent.value, parent.name.take()) {
            (YamlValue::List(nodes), _) => nodes.push(node),
            (YamlValue::Map(entries), Some((line, name))) => {
                entries.push(YamlEntry { line, name, node });
            }
            (_, _) => match node.value {
                YamlValue::Plain(name) | YamlValue::Quoted(name) => {
                    parent.name = Some((line, name));
                }
                YamlValue::List(_) | YamlValue::Map(_) => {
                    let message = "a name is a text, no list and no map";
                    return Err(YamlError::unsupported(line, message));
                }
            },
        }
        Ok(())
    }
}

impl YamlNode {
    /// The number of nodes of this tree.
    fn count(&self) -> usize {
        match &self.value {
            YamlValue::Plain(_) | YamlValue::Quoted(_) => 1,
            YamlValue::List(nodes) => 1 + nodes.iter().map(YamlNode::count).sum::<usize>(),
            YamlValue::Map(entries) => {
                1 + entries
                    .iter()
                    .map(|entry| entry.node.count())
                    .sum::<usize>()
            }
        }
    }
}

/// The entries of a map with those of its merge keys. An entry of the map itself wins, then the first merged one.
fn merged(entries: Vec<YamlEntry>) -> Result<Vec<YamlEntry>, YamlError> {
    let (merges, mut own): (Vec<YamlEntry>, Vec<YamlEntry>) =
        entries.into_iter().partition(|entry| entry.name == MERGE);
    for merge in merges {
        let sources = match merge.node.value {
            YamlValue::List(nodes) => nodes,
            value => vec![YamlNode {
                line: merge.node.line,
                value,
            }],
        };
        for source in sources {
            let YamlValue::Map(inherited) = source.value else {
                let message = "expected a map, or a list of maps, to merge";
                return Err(YamlError::unsupported(source.line, message));
            };
            for entry in inherited {
                if own.iter().all(|known| known.name != entry.name) {
                    own.push(entry);
                }
            }
        }
    }
    Ok(own)
}

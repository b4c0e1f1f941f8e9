//! TOML as a tree.
//!
//! The parser recovers from errors, so one run reports several. A name that is there twice does not prevent
//! the rest of the file from being read.

use toml::{
    Spanned,
    de::{DeTable, DeValue, Error},
};

use crate::key::without_secret;
use crate::policy_file::{
    code::DiagnosticCode,
    diagnostic::Diagnostics,
    tree::{Entry, MAX_DEPTH, Node, Value},
};

/// The parser's message for a name that is in a table twice.
const DUPLICATE: &str = "duplicate key";

/// Part of the parser's message for lists, tables and dotted names that are nested too deeply.
const RECURSION: &str = "recursion";

/// Parses a TOML text. The result is `None` after a diagnostic that the tree cannot survive.
pub(crate) fn tree(text: &str, diagnostics: &mut Diagnostics) -> Option<Node> {
    let lines = Lines::of(text);
    let (root, errors) = DeTable::parse_recoverable(text);
    let root = match lines.table(root.get_ref(), 1) {
        Ok(entries) => entries,
        Err(TooDeep { line }) => {
            diagnostics.add(DiagnosticCode::TooDeep, line, TooDeep::MESSAGE);
            return None;
        }
    };
    let mut is_toml = true;
    let mut last = None;
    for error in &errors {
        let line = match error.span() {
            Some(span) => lines.at(span.start),
            None => line_of_dots(text),
        };
        let (code, message) = diagnose(error, text);
        is_toml &= code == DiagnosticCode::DuplicateName;
        // One mistake causes further parser errors on the same line.
        if last.replace((code, line)) != Some((code, line)) {
            diagnostics.add(code, line, message);
        }
        if code == DiagnosticCode::TooDeep {
            break;
        }
    }
    let value = Value::Table(root);
    is_toml.then_some(Node { line: 1, value })
}

/// The line of a dotted name that is nested too deeply, for which the parser reports no position.
fn line_of_dots(text: &str) -> usize {
    let is_deep = |line: &str| line.matches('.').count() > MAX_DEPTH;
    text.lines().position(is_deep).map_or(1, |index| index + 1)
}

/// The code and the message for an error of the parser.
fn diagnose(error: &Error, text: &str) -> (DiagnosticCode, String) {
    let source = error.span().and_then(|span| text.get(span));
    match error.message() {
        DUPLICATE => {
            let name = without_secret(source.unwrap_or_default().trim_matches(['"', '\'']));
            (
                DiagnosticCode::DuplicateName,
                format!("{name:?} is there twice"),
            )
        }
        deep if deep.contains(RECURSION) => (DiagnosticCode::TooDeep, TooDeep::MESSAGE.to_owned()),
        other => (DiagnosticCode::Syntax, other.replace('\n', ", ")),
    }
}

/// The nesting exceeds [`MAX_DEPTH`] on this line.
struct TooDeep {
    line: usize,
}

impl TooDeep {
    const MESSAGE: &str = "lists and tables stand in each other too deep";
}

/// The offsets at which the lines of a text begin, except the first.
struct Lines(Vec<usize>);

impl Lines {
    /// Finds the line breaks of a text.
    fn of(text: &str) -> Lines {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Lines(ends.map(|(offset, _)| offset + 1).collect())
    }

    /// The line of the byte at `offset`, from 1.
    fn at(&self, offset: usize) -> usize {
        self.0.partition_point(|start| *start <= offset) + 1
    }

    /// The entries of a table, in the order of the file.
    fn table(&self, table: &DeTable<'_>, depth: usize) -> Result<Vec<Entry>, TooDeep> {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let entries = entries.into_iter().map(|(name, value)| {
            Ok(Entry {
                line: self.at(name.span().start),
                name: name.get_ref().clone().into_owned(),
                node: self.node(value, depth)?,
            })
        });
        entries.collect()
    }

    /// Converts a value and everything inside it.
    fn node(&self, value: &Spanned<DeValue<'_>>, depth: usize) -> Result<Node, TooDeep> {
        let line = self.at(value.span().start);
        if depth > MAX_DEPTH {
            return Err(TooDeep { line });
        }
        let value = match value.get_ref() {
            DeValue::String(text) => Value::Text(text.clone().into_owned()),
            DeValue::Integer(number) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => Value::Integer(number),
                    Err(_) => Value::Other("a number of 2^63 or more"),
                }
            }
            DeValue::Boolean(is_true) => Value::Bool(*is_true),
            DeValue::Float(_) => Value::Other("a number with a fraction"),
            DeValue::Datetime(_) => Value::Other("a date or time"),
            DeValue::Array(list) => {
                let nodes = list.iter().map(|value| self.node(value, depth + 1));
                Value::List(nodes.collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => Value::Table(self.table(table, depth + 1)?),
        };
        Ok(Node { line, value })
    }
}

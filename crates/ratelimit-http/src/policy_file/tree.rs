//! A parsed file as a tree with line numbers, independent of its format.

use std::{fmt, str::FromStr};

use crate::policy_file::{code::DiagnosticCode, diagnostic::Diagnostics};

/// The maximum nesting of lists and tables.
pub(crate) const MAX_DEPTH: usize = 16;

/// A value and the line on which it begins.
///
/// The readers, such as [`text`](Node::text) and [`integer`](Node::integer), return `None` after they have
/// added a diagnostic with this line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The line, from 1.
    pub line: usize,
    /// The value.
    pub value: Value,
}

/// The values that a file can contain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// A string.
    Text(String),
    /// A whole number that fits 64 bits.
    Integer(i64),
    /// True or false.
    Bool(bool),
    /// Values in the order of the file.
    List(Vec<Node>),
    /// Named values in the order of the file. A name can occur twice.
    Table(Vec<Entry>),
    /// A value that no field accepts: null, a fraction, a date. The text is its kind, for messages.
    Other(&'static str),
}

/// A named value of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The line of its name, from 1.
    pub line: usize,
    /// The name.
    pub name: String,
    /// The value.
    pub node: Node,
}

impl Value {
    /// The kind of the value, for messages.
    const fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) => "a text",
            Value::Integer(_) => "a whole number",
            Value::Bool(_) => "true or false",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
            Value::Other(kind) => kind,
        }
    }
}

impl Node {
    /// The string, or a diagnostic.
    pub fn text(&self, diagnostics: &mut Diagnostics) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => self.wrong_type("a text in quotes", diagnostics),
        }
    }

    /// The string parsed as `T`, or a diagnostic with the code [`DiagnosticCode::BadValue`].
    pub fn parsed<T>(&self, diagnostics: &mut Diagnostics) -> Option<T>
    where
        T: FromStr<Err: fmt::Display>,
    {
        self.parse_with(DiagnosticCode::BadValue, str::parse, diagnostics)
    }

    /// The string parsed by `read`, or a diagnostic with the given code.
    pub fn parse_with<T, E: fmt::Display>(
        &self,
        code: DiagnosticCode,
        read: impl FnOnce(&str) -> Result<T, E>,
        diagnostics: &mut Diagnostics,
    ) -> Option<T> {
        match read(self.text(diagnostics)?) {
            Ok(value) => Some(value),
            Err(error) => {
                diagnostics.add(code, self.line, error.to_string());
                None
            }
        }
    }

    /// The whole number as `N`, or a diagnostic that says what was `expected`.
    pub fn integer<N: TryFrom<i64>>(
        &self,
        expected: &'static str,
        diagnostics: &mut Diagnostics,
    ) -> Option<N> {
        let Value::Integer(number) = self.value else {
            return self.wrong_type(expected, diagnostics);
        };
        let fitting = N::try_from(number).ok();
        if fitting.is_none() {
            let message = format!("expected {expected}, not {number}");
            diagnostics.add(DiagnosticCode::BadValue, self.line, message);
        }
        fitting
    }

    /// The boolean, or a diagnostic.
    pub fn boolean(&self, diagnostics: &mut Diagnostics) -> Option<bool> {
        match self.value {
            Value::Bool(is_true) => Some(is_true),
            _ => self.wrong_type("true or false", diagnostics),
        }
    }

    /// The list, or a diagnostic.
    pub fn list(&self, diagnostics: &mut Diagnostics) -> Option<&[Node]> {
        match &self.value {
            Value::List(nodes) => Some(nodes),
            _ => self.wrong_type("a list", diagnostics),
        }
    }

    /// The entries of the table, or a diagnostic.
    pub fn table(&self, diagnostics: &mut Diagnostics) -> Option<&[Entry]> {
        match &self.value {
            Value::Table(entries) => Some(entries),
            _ => self.wrong_type("a table", diagnostics),
        }
    }

    /// Adds a diagnostic that the value is not of the `expected` kind. It always returns `None`.
    pub fn wrong_type<T>(&self, expected: &str, diagnostics: &mut Diagnostics) -> Option<T> {
        let message = format!("expected {expected}, not {}", self.value.kind());
        diagnostics.add(DiagnosticCode::WrongType, self.line, message);
        None
    }
}

//! A file as a tree that knows its lines, whatever language it was written in.

use std::{fmt, str::FromStr};

use crate::policy_file::{code::DiagnosticCode, diagnostic::Diagnostics};

/// How deep lists and tables may stand in each other.
pub(crate) const DEEPEST: usize = 16;

/// A value and the line on which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// From 1.
    pub line: usize,
    /// What stands there.
    pub value: Value,
}

/// What can stand in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// True or false.
    Bool(bool),
    /// Values in order.
    List(Vec<Node>),
    /// Values by name, in order.
    Table(Vec<Entry>),
    /// What no field takes: nothing, a fraction, a date.
    Other(&'static str),
}

/// A named value of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The line of its name, from 1.
    pub line: usize,
    /// Its name.
    pub name: String,
    /// Its value.
    pub node: Node,
}

impl Value {
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
    /// The text that stands here, or a finding.
    pub fn text(&self, diagnostics: &mut Diagnostics) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => self.wrong_type("a text in quotes", diagnostics),
        }
    }

    /// What the text that stands here means, or a finding.
    pub fn parsed<T>(&self, diagnostics: &mut Diagnostics) -> Option<T>
    where
        T: FromStr<Err: fmt::Display>,
    {
        self.parse_with(DiagnosticCode::BadValue, str::parse, diagnostics)
    }

    /// What `read` makes of the text that stands here, or a finding with that code.
    pub fn parse_with<T, E: fmt::Display>(
        &self,
        code: DiagnosticCode,
        read: impl FnOnce(&str) -> Result<T, E>,
        diagnostics: &mut Diagnostics,
    ) -> Option<T> {
        match read(self.text(diagnostics)?) {
            Ok(value) => Some(value),
            Err(why) => {
                diagnostics.add(code, self.line, why.to_string());
                None
            }
        }
    }

    /// The whole number that stands here, if it is `expected`, or a finding.
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

    /// Whether true or false stands here, or a finding.
    pub fn boolean(&self, diagnostics: &mut Diagnostics) -> Option<bool> {
        match self.value {
            Value::Bool(is_true) => Some(is_true),
            _ => self.wrong_type("true or false", diagnostics),
        }
    }

    /// The list that stands here, or a finding.
    pub fn list(&self, diagnostics: &mut Diagnostics) -> Option<&[Node]> {
        match &self.value {
            Value::List(nodes) => Some(nodes),
            _ => self.wrong_type("a list", diagnostics),
        }
    }

    /// The table that stands here, or a finding.
    pub fn table(&self, diagnostics: &mut Diagnostics) -> Option<&[Entry]> {
        match &self.value {
            Value::Table(entries) => Some(entries),
            _ => self.wrong_type("a table", diagnostics),
        }
    }

    /// Adds that `expected` should stand here.
    pub fn wrong_type<T>(&self, expected: &str, diagnostics: &mut Diagnostics) -> Option<T> {
        let message = format!("expected {expected}, not {}", self.value.kind());
        diagnostics.add(DiagnosticCode::WrongType, self.line, message);
        None
    }
}

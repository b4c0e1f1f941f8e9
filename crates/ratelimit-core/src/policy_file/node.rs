//! A file as a tree that knows its lines, whatever language it was written in.

use std::{fmt, str::FromStr};

use crate::policy_file::{code::Code, finding::Findings};

/// How deep lists and tables may stand in each other.
pub(super) const DEEPEST: usize = 16;

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
    pub fn text(&self, findings: &mut Findings) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => self.is_no("a text in quotes", findings),
        }
    }

    /// What the text that stands here means, or a finding.
    pub fn parsed<T>(&self, findings: &mut Findings) -> Option<T>
    where
        T: FromStr<Err: fmt::Display>,
    {
        self.checked(Code::BadValue, str::parse, findings)
    }

    /// What `read` makes of the text that stands here, or a finding with that code.
    pub fn checked<T, E: fmt::Display>(
        &self,
        code: Code,
        read: impl FnOnce(&str) -> Result<T, E>,
        findings: &mut Findings,
    ) -> Option<T> {
        match read(self.text(findings)?) {
            Ok(value) => Some(value),
            Err(why) => {
                findings.add(code, self.line, why.to_string());
                None
            }
        }
    }

    /// The whole number that stands here, if it is `expected`, or a finding.
    pub fn integer<N: TryFrom<i64>>(
        &self,
        expected: &'static str,
        findings: &mut Findings,
    ) -> Option<N> {
        let Value::Integer(number) = self.value else {
            return self.is_no(expected, findings);
        };
        let fitting = N::try_from(number).ok();
        if fitting.is_none() {
            let told = format!("expected {expected}, not {number}");
            findings.add(Code::BadValue, self.line, told);
        }
        fitting
    }

    /// Whether true or false stands here, or a finding.
    pub fn boolean(&self, findings: &mut Findings) -> Option<bool> {
        match self.value {
            Value::Bool(is_true) => Some(is_true),
            _ => self.is_no("true or false", findings),
        }
    }

    /// The list that stands here, or a finding.
    pub fn list(&self, findings: &mut Findings) -> Option<&[Node]> {
        match &self.value {
            Value::List(nodes) => Some(nodes),
            _ => self.is_no("a list", findings),
        }
    }

    /// The table that stands here, or a finding.
    pub fn table(&self, findings: &mut Findings) -> Option<&[Entry]> {
        match &self.value {
            Value::Table(entries) => Some(entries),
            _ => self.is_no("a table", findings),
        }
    }

    /// Adds that `expected` should stand here.
    pub fn is_no<T>(&self, expected: &str, findings: &mut Findings) -> Option<T> {
        let told = format!("expected {expected}, not {}", self.value.kind());
        findings.add(Code::WrongType, self.line, told);
        None
    }
}

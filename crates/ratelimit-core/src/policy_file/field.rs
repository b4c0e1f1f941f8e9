//! Tables whose fields are known: each is named once, beside what reads it.

use crate::policy_file::{
    code::Code,
    finding::Findings,
    node::{Entry, Node},
    suggestion::nearest,
};

/// A field of a table: its name, and what puts its value into `T`.
#[derive(Debug)]
pub struct Field<T> {
    name: &'static str,
    read: fn(&mut T, &Node, &mut Findings),
}

impl<T> Field<T> {
    /// A field of that name.
    pub const fn new(name: &'static str, read: fn(&mut T, &Node, &mut Findings)) -> Field<T> {
        Field { name, read }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// Reads every entry of a table into `target`; what no field is named for is a finding.
pub fn read_table<T>(
    target: &mut T,
    entries: &[Entry],
    fields: &[Field<T>],
    findings: &mut Findings,
) {
    let mut lines = vec![None; fields.len()];
    for entry in entries {
        let Some(place) = fields.iter().position(|field| field.name == entry.name) else {
            is_unknown(entry, fields, findings);
            continue;
        };
        match lines[place].replace(entry.line) {
            Some(before) => is_there_twice(&entry.name, entry.line, before, findings),
            None => (fields[place].read)(target, &entry.node, findings),
        }
    }
}

fn is_unknown<T>(entry: &Entry, fields: &[Field<T>], findings: &mut Findings) {
    let names = || fields.iter().map(Field::name);
    let hint = match nearest(&entry.name, names()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("expected one of {}", names().collect::<Vec<_>>().join(", ")),
    };
    let told = format!("unknown field {:?}: {hint}", entry.name);
    findings.add(Code::UnknownField, entry.line, told);
}

pub(super) fn is_there_twice(name: &str, line: usize, before: usize, findings: &mut Findings) {
    let told = format!("{name:?} is there twice, before on line {before}");
    findings.add(Code::DuplicateName, line, told);
}

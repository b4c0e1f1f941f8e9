//! Tables whose fields are known: each is named once, beside what reads it.

use crate::policy_file::{
    code::DiagnosticCode,
    diagnostic::Diagnostics,
    suggest::nearest,
    tree::{Entry, Node},
};

/// A field of a table: its name, and what puts its value into `T`.
#[derive(Debug)]
pub struct Field<T> {
    name: &'static str,
    read: fn(&mut T, &Node, &mut Diagnostics),
}

impl<T> Field<T> {
    /// A field of that name.
    pub const fn new(name: &'static str, read: fn(&mut T, &Node, &mut Diagnostics)) -> Field<T> {
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
    diagnostics: &mut Diagnostics,
) {
    let mut lines = vec![None; fields.len()];
    for entry in entries {
        let Some(place) = fields.iter().position(|field| field.name == entry.name) else {
            is_unknown(entry, fields, diagnostics);
            continue;
        };
        match lines[place].replace(entry.line) {
            Some(before) => report_duplicate(&entry.name, entry.line, before, diagnostics),
            None => (fields[place].read)(target, &entry.node, diagnostics),
        }
    }
}

fn is_unknown<T>(entry: &Entry, fields: &[Field<T>], diagnostics: &mut Diagnostics) {
    let names = || fields.iter().map(Field::name);
    let hint = match nearest(&entry.name, names()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("expected one of {}", names().collect::<Vec<_>>().join(", ")),
    };
    let message = format!("unknown field {:?}: {hint}", entry.name);
    diagnostics.add(DiagnosticCode::UnknownField, entry.line, message);
}

pub(crate) fn report_duplicate(
    name: &str,
    line: usize,
    before: usize,
    diagnostics: &mut Diagnostics,
) {
    let message = format!("{name:?} is there twice, before on line {before}");
    diagnostics.add(DiagnosticCode::DuplicateName, line, message);
}

//! Reading of tables by a list of known fields.

use crate::policy_file::{
    code::DiagnosticCode,
    diagnostic::Diagnostics,
    suggest::nearest,
    tree::{Entry, Node},
};

/// A field of a table: its name, and the function that reads its value into `T`.
#[derive(Debug)]
pub struct Field<T> {
    name: &'static str,
    read: fn(&mut T, &Node, &mut Diagnostics),
}

impl<T> Clone for Field<T> {
    fn clone(&self) -> Field<T> {
        *self
    }
}

impl<T> Copy for Field<T> {}

impl<T> Field<T> {
    /// A field called `name`. `read` adds a diagnostic if the value is invalid.
    pub const fn new(name: &'static str, read: fn(&mut T, &Node, &mut Diagnostics)) -> Field<T> {
        Field { name, read }
    }

    /// The name of the field.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// Reads the entries of a table into `target`.
///
/// An entry that no field reads gets a diagnostic with the most similar field name. An entry that is there
/// twice gets a diagnostic with the line of the first.
pub fn read_table<T>(
    target: &mut T,
    entries: &[Entry],
    fields: &[Field<T>],
    diagnostics: &mut Diagnostics,
) {
    let mut lines = vec![None; fields.len()];
    for entry in entries {
        let Some(index) = fields.iter().position(|field| field.name == entry.name) else {
            report_unknown(entry, fields, diagnostics);
            continue;
        };
        match lines[index].replace(entry.line) {
            Some(before) => report_duplicate(&entry.name, entry.line, before, diagnostics),
            None => (fields[index].read)(target, &entry.node, diagnostics),
        }
    }
}

/// The most names in the message about an unknown field without a similar name.
const MAX_NAMES: usize = 20;

/// Reports an entry that no field reads.
fn report_unknown<T>(entry: &Entry, fields: &[Field<T>], diagnostics: &mut Diagnostics) {
    let names = || fields.iter().map(Field::name);
    // Not for each of thousands of fields: the search takes longer than the rest.
    if diagnostics.is_full() {
        let message = format!("unknown field {:?}", shortened(&entry.name));
        diagnostics.add(DiagnosticCode::UnknownField, entry.line, message);
        return;
    }
    let hint = match nearest(&entry.name, names()) {
        Some(meant) => format!("did you mean {meant}?"),
        None if fields.len() > MAX_NAMES => "no field has a similar name".to_owned(),
        None => format!("expected one of {}", names().collect::<Vec<_>>().join(", ")),
    };
    let name = shortened(&entry.name);
    let message = format!("unknown field {name:?}: {hint}");
    diagnostics.add(DiagnosticCode::UnknownField, entry.line, message);
}

/// The beginning of a name. A file can hold a name of any length.
fn shortened(name: &str) -> &str {
    const MAX_LETTERS: usize = 100;
    let end = name.char_indices().nth(MAX_LETTERS);
    let end = end.map_or(name.len(), |(end, _)| end);
    &name[..end]
}

/// Reports a name that is there twice.
pub(crate) fn report_duplicate(
    name: &str,
    line: usize,
    before: usize,
    diagnostics: &mut Diagnostics,
) {
    let message = format!("{name:?} is there twice, before on line {before}");
    diagnostics.add(DiagnosticCode::DuplicateName, line, message);
}

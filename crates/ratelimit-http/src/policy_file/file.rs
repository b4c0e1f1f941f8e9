//! A policy file, read.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use crate::policy::HttpPolicy;
use crate::policy_file::{
    code::DiagnosticCode,
    diagnostic::{Diagnostic, Diagnostics, InvalidPolicyFile},
    field::{Field, read_table},
    format::Format,
    schema::read_policies,
    tree::{Node, Value},
};

/// The longest file, in bytes.
const LONGEST: u64 = 1 << 20;

/// What a policy file may hold.
const FIELDS: &[Field<Vec<HttpPolicy>>] = &[Field::new("policy", |policies, node, diagnostics| {
    *policies = read_policies(node, |name| name, diagnostics);
})];

/// A policy file, read: its policies, and all that is wrong with it.
///
/// ```
/// # #[cfg(feature = "toml")] {
/// use ratelimit_http::policy_file::{DiagnosticCode, Format, PolicyFile};
///
/// let file = PolicyFile::parse("[policy]\nlogin = '5/min'\nsearch = '10/s; 1000/s'\n", Format::Toml);
///
/// assert_eq!(file.policies.len(), 2);
/// assert_eq!(file.diagnostics[0].code, DiagnosticCode::ShadowedLimit);
/// assert_eq!(file.diagnostics[0].line, 3);
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PolicyFile {
    /// The policies that could be read.
    pub policies: Vec<HttpPolicy>,
    /// All that is wrong with the file, by line.
    pub diagnostics: Vec<Diagnostic>,
    is_refused: bool,
}

impl PolicyFile {
    /// Reads the text of a policy file.
    pub fn parse(text: &str, format: Format) -> PolicyFile {
        let mut diagnostics = Diagnostics::new();
        let root = parse(text, format, &mut diagnostics);
        PolicyFile::of(root.as_ref(), diagnostics)
    }

    /// Reads a policy file, whose name says its format: `.toml`, `.yaml` or `.yml`.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn read(path: &Path) -> io::Result<PolicyFile> {
        let mut diagnostics = Diagnostics::new();
        let root = read(path, &mut diagnostics)?;
        Ok(PolicyFile::of(root.as_ref(), diagnostics))
    }

    fn of(root: Option<&Node>, mut diagnostics: Diagnostics) -> PolicyFile {
        let mut policies = Vec::new();
        if let Some(entries) = root.and_then(|root| root.table(&mut diagnostics)) {
            read_table(&mut policies, entries, FIELDS, &mut diagnostics);
        }
        PolicyFile {
            policies,
            is_refused: diagnostics.has_errors(),
            diagnostics: diagnostics.sorted(),
        }
    }

    /// The policies of a file without errors.
    ///
    /// # Errors
    ///
    /// When a finding is an error.
    pub fn accepted(self) -> Result<Vec<HttpPolicy>, InvalidPolicyFile> {
        if self.is_refused {
            return Err(InvalidPolicyFile::new(self.diagnostics));
        }
        Ok(self.policies)
    }
}

/// The tree of a file that is not empty; nothing when what was found leaves nothing to read.
///
/// # Errors
///
/// When the file cannot be read.
pub fn read(path: &Path, diagnostics: &mut Diagnostics) -> io::Result<Option<Node>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(LONGEST + 1)
        .read_to_end(&mut bytes)?;
    let Some(format) = Format::of(path) else {
        let message = format!("expected a file whose name ends in {}", Format::ENDINGS);
        diagnostics.add(DiagnosticCode::UnknownFormat, 1, message);
        return Ok(None);
    };
    let text = match str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(_) if is_too_long(bytes.len()) => return Ok(too_large(diagnostics)),
        Err(why) => {
            let before = &bytes[..why.valid_up_to()];
            let line = before.split(|byte| *byte == b'\n').count();
            diagnostics.add(DiagnosticCode::NotText, line, "expected UTF-8");
            return Ok(None);
        }
    };
    Ok(parse(text, format, diagnostics))
}

/// The tree of a text that is not empty; nothing when what was found leaves nothing to read.
pub fn parse(text: &str, format: Format, diagnostics: &mut Diagnostics) -> Option<Node> {
    if is_too_long(text.len()) {
        return too_large(diagnostics);
    }
    let root = match format {
        #[cfg(feature = "toml")]
        Format::Toml => crate::policy_file::toml::tree(text, diagnostics),
        #[cfg(feature = "yaml")]
        Format::Yaml => crate::policy_file::yaml::tree(text, diagnostics),
    }?;
    if matches!(&root.value, Value::Table(entries) if entries.is_empty()) {
        diagnostics.add(DiagnosticCode::EmptyFile, 1, "the file says nothing");
        return None;
    }
    Some(root)
}

fn is_too_long(bytes: usize) -> bool {
    u64::try_from(bytes).is_ok_and(|bytes| bytes > LONGEST)
}

fn too_large(diagnostics: &mut Diagnostics) -> Option<Node> {
    let message = format!("expected a file of at most {LONGEST} bytes");
    diagnostics.add(DiagnosticCode::TooLarge, 1, message);
    None
}

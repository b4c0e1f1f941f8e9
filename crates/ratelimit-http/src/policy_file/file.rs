//! Reading of policy files.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read as _},
    path::Path,
};

use crate::key::KeyKinds;
use crate::policy::HttpPolicy;
use crate::policy_file::{
    code::DiagnosticCode,
    diagnostic::{Diagnostic, Diagnostics, InvalidPolicyFile},
    field::{Field, read_table},
    format::Format,
    schema::read_policies,
    tree::{Node, Value},
};

/// The maximum size of a file in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The fields of a policy file.
const FIELDS: &[Field<Vec<HttpPolicy>>] = &[Field::new("policy", |policies, node, diagnostics| {
    *policies = read_policies(node, |name| name, &KeyKinds::unknown(), diagnostics);
})];

/// The policies of a file, and the diagnostics about it.
///
/// - All mistakes are reported at once, each with a stable code and a line. After 100 the rest is dropped.
/// - Warnings are about files that probably mean something else, such as a limit that can never deny.
/// - [`accepted`](PolicyFile::accepted) returns the policies if there is no error.
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
    /// The diagnostics, in the order of lines.
    pub diagnostics: Vec<Diagnostic>,
    has_errors: bool,
}

impl PolicyFile {
    /// Parses the text of a policy file.
    pub fn parse(text: &str, format: Format) -> PolicyFile {
        let mut diagnostics = Diagnostics::new();
        let root = parse(text, format, &mut diagnostics);
        PolicyFile::of(root.as_ref(), diagnostics)
    }

    /// Reads a policy file. The format follows from its name: `.toml`, `.yaml` or `.yml`.
    ///
    /// # Errors
    ///
    /// The [`io::Error`] of opening or reading the file, or of something that is not a regular file. All other mistakes, such as an unknown format, are
    /// diagnostics.
    pub fn read(path: &Path) -> io::Result<PolicyFile> {
        let mut diagnostics = Diagnostics::new();
        let root = read(path, &mut diagnostics)?;
        Ok(PolicyFile::of(root.as_ref(), diagnostics))
    }

    /// Parses the contents of the policy file `path`, whose name has the format.
    pub(crate) fn from_bytes(bytes: &[u8], path: &Path) -> PolicyFile {
        let mut diagnostics = Diagnostics::new();
        let root = parse_bytes(bytes, path, &mut diagnostics);
        PolicyFile::of(root.as_ref(), diagnostics)
    }

    /// Reads the policies from the tree.
    fn of(root: Option<&Node>, mut diagnostics: Diagnostics) -> PolicyFile {
        let mut policies = Vec::new();
        if let Some(entries) = root.and_then(|root| root.table(&mut diagnostics)) {
            read_table(&mut policies, entries, FIELDS, &mut diagnostics);
        }
        PolicyFile {
            policies,
            has_errors: diagnostics.has_errors(),
            diagnostics: diagnostics.sorted(),
        }
    }

    /// The policies of a file without errors. Warnings are dropped.
    ///
    /// ```
    /// # #[cfg(feature = "yaml")] {
    /// use ratelimit_http::policy_file::{Format, PolicyFile};
    ///
    /// let good = PolicyFile::parse("policy: { login: 5/min }", Format::Yaml);
    /// assert_eq!(good.accepted().expect("no errors")[0].name(), "login");
    ///
    /// let bad = PolicyFile::parse("policy: { login: often }", Format::Yaml);
    /// assert_eq!(bad.accepted().expect_err("not a limit").diagnostics().len(), 1);
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidPolicyFile`] with all diagnostics, if one of them is an error.
    pub fn accepted(self) -> Result<Vec<HttpPolicy>, InvalidPolicyFile> {
        if self.has_errors {
            return Err(InvalidPolicyFile::new(self.diagnostics));
        }
        Ok(self.policies)
    }

    /// The policies of a file without errors. Warnings are logged.
    ///
    /// # Errors
    ///
    /// As [`accepted`](PolicyFile::accepted).
    pub(crate) fn accepted_with_warnings(
        self,
        path: Option<&Path>,
    ) -> Result<Vec<HttpPolicy>, InvalidPolicyFile> {
        if !self.has_errors {
            for warning in &self.diagnostics {
                if let Some(path) = path {
                    tracing::warn!("{}", warning.in_file(path.display()));
                } else {
                    tracing::warn!("policy file, {warning}");
                }
            }
        }
        self.accepted()
    }
}

/// Reads a file as a tree. The result is `None` after a diagnostic that leaves nothing to read.
///
/// # Errors
///
/// The [`io::Error`] of opening or reading the file. A directory, FIFO, socket or device is an error: reading one may
/// never end.
pub fn read(path: &Path, diagnostics: &mut Diagnostics) -> io::Result<Option<Node>> {
    let bytes = read_bytes(path)?;
    Ok(parse_bytes(&bytes, path, diagnostics))
}

/// The contents of a file. They end after the size at which it is rejected.
pub(crate) fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    // Before the file is opened: opening a FIFO waits for its writer.
    check_regular(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    check_regular(&file.metadata()?)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Parses the contents of `path` as a tree.
fn parse_bytes(bytes: &[u8], path: &Path, diagnostics: &mut Diagnostics) -> Option<Node> {
    let Some(format) = Format::of(path) else {
        let message = format!("expected a file whose name ends in {}", Format::ENDINGS);
        diagnostics.add(DiagnosticCode::UnknownFormat, 1, message);
        return None;
    };
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) if is_too_long(bytes.len()) => return too_large(diagnostics),
        Err(error) => {
            let before = &bytes[..error.valid_up_to()];
            let line = before.split(|byte| *byte == b'\n').count();
            diagnostics.add(DiagnosticCode::NotText, line, "expected UTF-8");
            return None;
        }
    };
    parse(text, format, diagnostics)
}

fn check_regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let message = "expected a regular file, not a directory, FIFO, socket or device";
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Parses a text as a tree. The result is `None` after a diagnostic that leaves nothing to read: the text is
/// empty, longer than 1 MiB, or malformed.
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

/// Whether a file of this size is rejected.
fn is_too_long(bytes: usize) -> bool {
    u64::try_from(bytes).is_ok_and(|bytes| bytes > MAX_BYTES)
}

fn too_large(diagnostics: &mut Diagnostics) -> Option<Node> {
    let message = format!("expected a file of at most {MAX_BYTES} bytes");
    diagnostics.add(DiagnosticCode::TooLarge, 1, message);
    None
}

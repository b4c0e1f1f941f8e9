//! A policy file, read.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use crate::policy::Policy;
use crate::policy_file::{
    code::Code,
    field::{Field, read_table},
    finding::{Finding, Findings, InvalidPolicyFile},
    format::Format,
    node::{Node, Value},
    policy_table::read_policies,
};

/// The longest file, in bytes.
const LONGEST: u64 = 1 << 20;

/// What a policy file may hold.
const FIELDS: &[Field<Vec<Policy>>] = &[Field::new("policy", |policies, node, findings| {
    *policies = read_policies(node, |name| name, findings);
})];

/// A policy file, read: its policies, and all that is wrong with it.
///
/// ```
/// # #[cfg(feature = "toml")] {
/// use ratelimit_core::{Code, Format, PolicyFile};
///
/// let file = PolicyFile::parse("[policy]\nlogin = '5/min'\nsearch = '10/s; 1000/s'\n", Format::Toml);
///
/// assert_eq!(file.policies.len(), 2);
/// assert_eq!(file.findings[0].code, Code::ShadowedLimit);
/// assert_eq!(file.findings[0].line, 3);
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PolicyFile {
    /// The policies that could be read.
    pub policies: Vec<Policy>,
    /// All that is wrong with the file, by line.
    pub findings: Vec<Finding>,
    is_refused: bool,
}

impl PolicyFile {
    /// Reads the text of a policy file.
    pub fn parse(text: &str, format: Format) -> PolicyFile {
        let mut findings = Findings::new();
        let root = parse(text, format, &mut findings);
        PolicyFile::of(root.as_ref(), findings)
    }

    /// Reads a policy file, whose name says its format: `.toml`, `.yaml` or `.yml`.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn read(path: &Path) -> io::Result<PolicyFile> {
        let mut findings = Findings::new();
        let root = read(path, &mut findings)?;
        Ok(PolicyFile::of(root.as_ref(), findings))
    }

    fn of(root: Option<&Node>, mut findings: Findings) -> PolicyFile {
        let mut policies = Vec::new();
        if let Some(entries) = root.and_then(|root| root.table(&mut findings)) {
            read_table(&mut policies, entries, FIELDS, &mut findings);
        }
        PolicyFile {
            policies,
            is_refused: findings.has_errors(),
            findings: findings.sorted(),
        }
    }

    /// The policies of a file without errors.
    ///
    /// # Errors
    ///
    /// When a finding is an error.
    pub fn accepted(self) -> Result<Vec<Policy>, InvalidPolicyFile> {
        if self.is_refused {
            return Err(InvalidPolicyFile::new(self.findings));
        }
        Ok(self.policies)
    }
}

/// The tree of a file that is not empty; nothing when what was found leaves nothing to read.
///
/// # Errors
///
/// When the file cannot be read.
pub fn read(path: &Path, findings: &mut Findings) -> io::Result<Option<Node>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(LONGEST + 1)
        .read_to_end(&mut bytes)?;
    let Some(format) = Format::of(path) else {
        let told = format!("expected a file whose name ends in {}", Format::ENDINGS);
        findings.add(Code::UnknownFormat, 1, told);
        return Ok(None);
    };
    let text = match str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(_) if is_too_long(bytes.len()) => return Ok(too_large(findings)),
        Err(why) => {
            let before = &bytes[..why.valid_up_to()];
            let line = before.split(|byte| *byte == b'\n').count();
            findings.add(Code::NotText, line, "expected UTF-8");
            return Ok(None);
        }
    };
    Ok(parse(text, format, findings))
}

/// The tree of a text that is not empty; nothing when what was found leaves nothing to read.
pub fn parse(text: &str, format: Format, findings: &mut Findings) -> Option<Node> {
    if is_too_long(text.len()) {
        return too_large(findings);
    }
    let root = match format {
        #[cfg(feature = "toml")]
        Format::Toml => super::from_toml::tree(text, findings),
        #[cfg(feature = "yaml")]
        Format::Yaml => super::from_yaml::tree(text, findings),
    }?;
    if matches!(&root.value, Value::Table(entries) if entries.is_empty()) {
        findings.add(Code::EmptyFile, 1, "the file says nothing");
        return None;
    }
    Some(root)
}

fn is_too_long(bytes: usize) -> bool {
    u64::try_from(bytes).is_ok_and(|bytes| bytes > LONGEST)
}

fn too_large(findings: &mut Findings) -> Option<Node> {
    let told = format!("expected a file of at most {LONGEST} bytes");
    findings.add(Code::TooLarge, 1, told);
    None
}

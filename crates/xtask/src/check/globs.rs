//! No module re-exports by glob.

use std::path::Path;

use crate::{
    check::{
        exceptions::{Exceptions, Findings},
        path::{Visibility, use_items},
        rust_file::{self, RustFile},
        token::tokens,
    },
    failure::Failure,
    workspace::Workspace,
};

const LIST: &str = "crates/xtask/exceptions/globs.txt";
const ADVICE: &str = "name what is re-exported: `pub use self::limit::{Limit, InvalidLimit}`";

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    Exceptions::check(&workspace.root, LIST, &find(&workspace.root)?, ADVICE)
}

pub(super) fn write(workspace: &Workspace) -> Result<(), Failure> {
    Exceptions::write(&workspace.root, LIST, &find(&workspace.root)?)
}

fn find(root: &Path) -> Result<Findings, Failure> {
    let mut findings = Findings::new();
    for file in rust_file::load(root)? {
        for glob in globs(&file) {
            findings.entry(file.path.clone()).or_default().push(glob);
        }
    }
    Ok(findings)
}

fn globs(file: &RustFile) -> Vec<String> {
    let mut found = Vec::new();
    for item in use_items(&tokens(&file.code)) {
        let globs = item.paths.iter().filter(|path| path.name() == "*");
        for path in globs.filter(|_| item.visibility != Visibility::Private) {
            let segments = path.segments.join("::");
            found.push(format!("line {}: `{segments}`", path.line));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str) -> usize {
        globs(&RustFile::new("crates/a/src/lib.rs", code)).len()
    }

    #[test]
    fn a_glob_is_found_where_it_is_re_exported() {
        assert_eq!(found("pub use a::*;"), 1);
        assert_eq!(found("pub(crate) use a::{b, c::*};"), 1);
        assert_eq!(found("use a::*; pub use b::C;"), 0);
        assert_eq!(found("#[cfg(test)]\npub(crate) use a::*;"), 0);
    }
}

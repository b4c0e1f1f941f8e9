//! Dependencies that users would compile twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::{failure::Failure, workspace::Workspace};

const ADVICE: &str = "\
    agree on one version (`cargo tree -e normal -i <crate>@<version>` says who asks), \
    or give a reason under [workspace.metadata.xtask.duplicates] in Cargo.toml";

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let shipped = workspace.shipped();
    let versions = shipped
        .iter()
        .map(|package| (package.name.as_str(), package.version.as_str()));
    let found = problems(versions, &workspace.exceptions().duplicates);
    Failure::unless_none(found, ADVICE)
}

fn problems<'a>(
    packages: impl Iterator<Item = (&'a str, &'a str)>,
    reasons: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut lines: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (name, version) in packages {
        lines.entry(name).or_default().insert(compatible(version));
    }
    lines.retain(|_, versions| versions.len() > 1);

    let unexplained = lines
        .iter()
        .filter(|(name, _)| !reasons.contains_key(**name))
        .map(|(name, versions)| {
            let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
            format!("{name} ships in the versions {}", versions.join(" and "))
        });
    let stale = reasons
        .keys()
        .filter(|name| !lines.contains_key(name.as_str()))
        .map(|name| format!("{name} does not ship twice and needs no reason"));
    unexplained.chain(stale).collect()
}

/// The part of a version that must be equal for two to be one in a build.
fn compatible(version: &str) -> String {
    let parts: Vec<&str> = version.split(['.', '+', '-']).collect();
    let zeros = parts
        .iter()
        .take(2)
        .take_while(|part| **part == "0")
        .count();
    parts[..parts.len().min(zeros + 1)].join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(packages: &[(&str, &str)], reasons: &[&str]) -> Vec<String> {
        let reasons = reasons
            .iter()
            .map(|name| ((*name).to_owned(), "why".to_owned()))
            .collect();
        problems(packages.iter().copied(), &reasons)
    }

    #[test]
    fn versions_are_one_up_to_their_first_number_that_counts() {
        assert_eq!(compatible("1.2.3"), "1");
        assert_eq!(compatible("0.2.12"), "0.2");
        assert_eq!(compatible("0.0.3+build"), "0.0.3");
        assert_eq!(compatible("2.0.0-rc.1"), "2");
    }

    #[test]
    fn two_incompatible_versions_need_a_reason() {
        let packages = [
            ("http", "0.2.12"),
            ("http", "1.3.1"),
            ("syn", "2.0.1"),
            ("syn", "2.1.0"),
        ];

        assert_eq!(
            found(&packages, &[]),
            ["http ships in the versions 0.2 and 1"]
        );
        assert_eq!(found(&packages, &["http"]), [""; 0]);
    }

    #[test]
    fn a_reason_goes_when_its_duplicate_has_gone() {
        let packages = [("http", "1.3.1")];

        assert_eq!(
            found(&packages, &["http"]),
            ["http does not ship twice and needs no reason"]
        );
    }
}

//! The packages of the workspace, from `cargo metadata`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde::Deserialize;

use crate::{
    command::{cargo, output},
    failure::Failure,
};

/// Features that only one command builds: the peers of `bench`, and the long runs of `acceptance`.
const LEFT_OUT: [&str; 3] = [
    "ratelimit-bench/memory-choices",
    "ratelimit-bench/peers",
    "ratelimit-server/acceptance",
];

/// The workspace and its packages.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    packages: Vec<Package>,
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    /// Where cargo builds: `CARGO_TARGET_DIR`, `build.target-dir`, or `target` at the top.
    pub(crate) target_directory: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    dependencies: Vec<Dependency>,
    features: BTreeMap<String, Vec<String>>,
    rust_version: String,
    publish: Option<Vec<String>>,
    targets: Vec<Target>,
}

/// A dependency as a manifest declares it.
#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    req: String,
    kind: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

impl Workspace {
    /// Reads the manifests; needs no network.
    pub(crate) fn members() -> Result<Workspace, Failure> {
        let advice = "see that every Cargo.toml is well formed";
        let line = ["metadata", "--format-version=1", "--no-deps"];
        let json = output(&mut cargo(&line), advice)?;
        serde_json::from_slice(&json).map_err(|error| {
            Failure::new(format!("cargo metadata is not understood: {error}"), advice)
        })
    }

    /// The packages that go to the registry.
    pub(crate) fn published(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| package.is_published())
    }

    /// The oldest Rust that the crates promise to compile with.
    pub(crate) fn rust_version(&self) -> &str {
        let versions = self
            .published()
            .map(|package| package.rust_version.as_str());
        versions.max().unwrap_or_default()
    }

    /// Every feature of our packages that is tested, as cargo takes them.
    pub(crate) fn features(&self) -> String {
        let of = |package: &Package| {
            let names = package.features.keys();
            let names = names.map(|feature| format!("{}/{feature}", package.name));
            names.collect::<Vec<_>>()
        };
        let mut features: Vec<String> = self.packages.iter().flat_map(of).collect();
        features.retain(|feature| !LEFT_OUT.contains(&feature.as_str()));
        features.join(",")
    }

    /// The names of all integration tests.
    pub(crate) fn test_targets(&self) -> Vec<String> {
        let targets = self.packages.iter().flat_map(|package| &package.targets);
        let tests = targets.filter(|target| target.kind.iter().any(|kind| kind == "test"));
        let names: BTreeSet<String> = tests.map(|target| target.name.clone()).collect();
        names.into_iter().collect()
    }
}

impl Package {
    fn is_published(&self) -> bool {
        self.publish
            .as_ref()
            .is_none_or(|registries| !registries.is_empty())
    }

    /// The normal dependencies, and the versions that the manifest asks for.
    pub(crate) fn requirements(&self) -> impl Iterator<Item = (&str, &str)> {
        let normal = self.dependencies.iter();
        let normal = normal.filter(|dependency| dependency.kind.is_none());
        normal.map(|dependency| (dependency.name.as_str(), dependency.req.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_of_single_commands_exist_and_are_left_out() {
        let workspace = Workspace::members().unwrap_or_else(|failure| panic!("{failure}"));
        let has = |name: &str| {
            let (package, feature) = name.split_once('/').unwrap_or_default();
            let mut own = workspace.packages.iter();
            own.any(|own| own.name == package && own.features.contains_key(feature))
        };
        let features = workspace.features();
        let tested: Vec<&str> = features.split(',').collect();

        for name in LEFT_OUT {
            assert!(has(name), "{name}");
            assert!(!tested.contains(&name), "{name}");
        }
        assert!(tested.contains(&"ratelimit-server/envoy"), "{features}");
    }
}

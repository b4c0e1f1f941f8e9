//! The packages of the workspace, as `cargo metadata` tells them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::{
    command::{cargo, output},
    failure::Failure,
};

/// Features that one command builds for itself: the peers of `bench`, and the long runs of `acceptance`.
const LEFT_OUT: [&str; 3] = [
    "ratelimit-bench/memory-choices",
    "ratelimit-bench/peers",
    "ratelimit-server/acceptance",
];

/// The workspace, its packages, and what they depend on.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    /// Where cargo builds: `CARGO_TARGET_DIR`, `build.target-dir`, or `target` at the top.
    pub(crate) target_directory: PathBuf,
    #[serde(rename = "workspace_members")]
    members: BTreeSet<String>,
    resolve: Option<Resolve>,
    metadata: Option<Metadata>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
    #[serde(default)]
    pub(crate) features: BTreeMap<String, Vec<String>>,
    publish: Option<Vec<String>>,
    targets: Vec<Target>,
    manifest_path: PathBuf,
    #[serde(flatten)]
    pub(crate) fields: RegistryFields,
}

/// Fields of `[package]` that the registry and docs.rs show.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RegistryFields {
    pub(crate) readme: Option<String>,
    pub(crate) rust_version: Option<String>,
    #[serde(default)]
    pub(crate) keywords: Vec<String>,
    #[serde(default)]
    pub(crate) categories: Vec<String>,
    #[serde(default)]
    pub(crate) metadata: serde_json::Value,
}

/// A dependency as a manifest declares it.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    req: String,
    kind: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Debug, Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<EdgeKind>,
}

#[derive(Debug, Deserialize)]
struct EdgeKind {
    kind: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    xtask: Option<DependencyExceptions>,
}

/// `[workspace.metadata.xtask]`: crates that are let pass, each with its reason.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DependencyExceptions {
    #[serde(default)]
    pub(crate) duplicates: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) licences: BTreeMap<String, String>,
}

impl Workspace {
    /// The workspace without the crates it depends on; needs no network.
    pub(crate) fn members() -> Result<Workspace, Failure> {
        Workspace::load(&["metadata", "--format-version=1", "--no-deps"])
    }

    /// The workspace with every crate it can depend on, on any platform.
    pub(crate) fn resolved() -> Result<Workspace, Failure> {
        Workspace::load(&["metadata", "--format-version=1", "--all-features"])
    }

    fn load(args: &[&str]) -> Result<Workspace, Failure> {
        let advice = "see that every Cargo.toml is well formed";
        let json = output(&mut cargo(args), advice)?;
        serde_json::from_slice(&json).map_err(|error| {
            Failure::new(format!("cargo metadata is not understood: {error}"), advice)
        })
    }

    /// Our own packages.
    pub(crate) fn own(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| self.members.contains(&package.id))
    }

    /// Our own packages that go to the registry.
    pub(crate) fn published(&self) -> impl Iterator<Item = &Package> {
        self.own().filter(|package| package.is_published())
    }

    /// Every feature of our packages that is tested, as cargo takes them.
    pub(crate) fn features(&self) -> String {
        let of = |package: &Package| {
            let names = package.features.keys();
            let names = names.map(|feature| format!("{}/{feature}", package.name));
            names.collect::<Vec<_>>()
        };
        let mut features: Vec<String> = self.own().flat_map(of).collect();
        features.retain(|feature| !LEFT_OUT.contains(&feature.as_str()));
        features.join(",")
    }

    /// The names of all integration tests.
    pub(crate) fn test_targets(&self) -> Vec<String> {
        let targets = self.own().flat_map(|package| &package.targets);
        let tests = targets.filter(|target| target.kind.iter().any(|kind| kind == "test"));
        let names: BTreeSet<String> = tests.map(|target| target.name.clone()).collect();
        names.into_iter().collect()
    }

    /// The packages that users of the published ones compile: normal dependencies, recursively.
    pub(crate) fn shipped(&self) -> Vec<&Package> {
        let nodes = self.resolve.iter().flat_map(|resolve| &resolve.nodes);
        let edges: BTreeMap<&str, &[Edge]> = nodes
            .map(|node| (node.id.as_str(), node.deps.as_slice()))
            .collect();
        let mut open: Vec<&str> = self
            .published()
            .map(|package| package.id.as_str())
            .collect();
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                let deps = edges.get(id).copied().unwrap_or_default();
                open.extend(
                    deps.iter()
                        .filter(|edge| edge.is_normal())
                        .map(|edge| edge.pkg.as_str()),
                );
            }
        }
        self.packages
            .iter()
            .filter(|package| seen.contains(package.id.as_str()))
            .collect()
    }

    pub(crate) fn exceptions(&self) -> DependencyExceptions {
        let metadata = self.metadata.as_ref();
        metadata
            .and_then(|metadata| metadata.xtask.clone())
            .unwrap_or_default()
    }
}

impl Package {
    pub(crate) fn is_published(&self) -> bool {
        self.publish
            .as_ref()
            .is_none_or(|registries| !registries.is_empty())
    }

    /// The folder of its manifest.
    pub(crate) fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }

    /// The normal dependencies, and the versions that the manifest asks for.
    pub(crate) fn requirements(&self) -> impl Iterator<Item = (&str, &str)> {
        let normal = self.dependencies.iter();
        let normal = normal.filter(|dependency| dependency.kind.is_none());
        normal.map(|dependency| (dependency.name.as_str(), dependency.req.as_str()))
    }

    /// The version of a crate that this package asks for, as its manifest writes it.
    pub(crate) fn requirement(&self, name: &str) -> Option<&str> {
        let is_it = |dependency: &&Dependency| dependency.name == name && dependency.kind.is_none();
        let dependency = self.dependencies.iter().find(is_it)?;
        Some(dependency.req.trim_start_matches('^'))
    }
}

impl Edge {
    fn is_normal(&self) -> bool {
        self.dep_kinds.iter().any(|edge| edge.kind.is_none())
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
            let mut own = workspace.own();
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

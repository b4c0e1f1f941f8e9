//! `cargo xtask proto`: Rust code from the messages of Envoy in crates/ratelimit-envoy/proto.
//!
//! The code is committed, so that users of the crate need neither a build script nor `protoc`.

use std::{collections::BTreeMap, env, fs, path::Path, process};

use crate::{failure::Failure, workspace::Workspace};

const CRATE: &str = "crates/ratelimit-envoy";
const ADVICE: &str = "run `cargo xtask proto`, and commit crates/ratelimit-envoy/generated";

/// The file of the encoded descriptors, which the reflection service of the server sends.
const DESCRIPTORS: &str = "descriptors.bin";

pub(crate) const HELP: &str = "\
Write crates/ratelimit-envoy/generated from crates/ratelimit-envoy/proto.

Usage: cargo xtask proto

`cargo xtask check proto` fails when the two disagree.";

/// The content of a generated file by its name.
type Generated = BTreeMap<String, Vec<u8>>;

/// Replaces the committed files.
pub(crate) fn write() -> Result<(), Failure> {
    let root = Workspace::members()?.root;
    let folder = root.join(CRATE).join("generated");
    let files = generate(&root)?;
    let write = || {
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        files
            .iter()
            .try_for_each(|(name, content)| fs::write(folder.join(name), content))
    };
    write().map_err(failure)
}

/// Compares the committed files with those that the messages give.
pub(crate) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let committed = read(&workspace.root.join(CRATE).join("generated"))?;
    let expected = generate(&workspace.root)?;
    let names = committed.keys().chain(expected.keys());
    let differs = |name: &&String| committed.get(*name) != expected.get(*name);
    let mut problems: Vec<String> = names
        .filter(differs)
        .map(|name| format!("{CRATE}/generated/{name} is not what the messages give"))
        .collect();
    problems.dedup();
    Failure::unless_none(problems, ADVICE)
}

/// Compiles the messages in a folder of its own, and reads the result.
fn generate(root: &Path) -> Result<Generated, Failure> {
    let protos = root.join(CRATE).join("proto");
    let mut names: Vec<String> = read(&protos)?.into_keys().collect();
    names.sort();
    let mut compiler = protox::Compiler::new([&protos]).map_err(failure)?;
    compiler.include_imports(true);
    compiler.open_files(&names).map_err(failure)?;
    let descriptors = compiler.file_descriptor_set();
    let encoded = compiler.encode_file_descriptor_set();

    let folder = env::temp_dir().join(format!("ratelimit-proto-{}", process::id()));
    fs::create_dir_all(&folder).map_err(failure)?;
    let generated = tonic_prost_build::configure()
        // `connect` of a client needs the transport of tonic, which the server does not use.
        .build_transport(false)
        .bytes(".")
        .include_file("mod.rs")
        .out_dir(&folder)
        .compile_fds(descriptors)
        .map_err(failure)
        .and_then(|()| read(&folder));
    fs::remove_dir_all(&folder).map_err(failure)?;
    let mut generated = generated?;
    generated.insert(DESCRIPTORS.to_owned(), encoded);
    Ok(generated)
}

/// The files of a folder.
fn read(folder: &Path) -> Result<Generated, Failure> {
    let read = || {
        fs::read_dir(folder)?
            .map(|entry| {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                Ok((name, fs::read(entry.path())?))
            })
            .collect::<std::io::Result<Generated>>()
    };
    read().map_err(failure)
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string(), ADVICE)
}

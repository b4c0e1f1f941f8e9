//! Counts the functions and files of ours that one axum request passes through.

mod callgrind;

use std::{collections::BTreeSet, env, path::PathBuf, process::Command};

use crate::{
    command::{cargo, run},
    failure::Failure,
    hops::callgrind::{OurFunction, our_functions},
    redis::Redis,
    tools,
    workspace::Workspace,
};

pub(crate) const HELP: &str = "\
Count the functions of the ratelimit_* crates that one axum request executes, and their files, on the memory
store and on Redis.

Usage: cargo xtask hops [--list]

Options:
  --list  Name the functions of each file

A small program serves one request through `ratelimit_axum::RateLimitLayer` with the layer's defaults, after
requests that warm it up, under callgrind. It is built without optimisation, so that calls stay calls; functions
that are marked `inline(always)` are not seen. Callgrind names what was executed. A function counts once, whatever
types it is instantiated with: type arguments are cut from its name, and so are closures and async blocks, which
belong to the function that contains them. An implementation of a trait counts by its type and trait.
`ratelimit_bench`, whose program this is, is left out.";

const STORES: [&str; 2] = ["memory", "redis"];

/// Builds the program of one request, and counts for each store.
pub(crate) fn run_all(args: &[String]) -> Result<(), Failure> {
    if args.iter().any(|arg| arg != "--list") {
        let advice = "see `cargo xtask hops --help`";
        return Err(Failure::new("unknown option", advice));
    }
    tools::ensure_one("valgrind")?;
    let server = Redis::ensure_binary()?;
    let program = build()?;

    println!("{:<8} {:>9} {:>5}", "store", "functions", "files");
    for store in STORES {
        let functions = count(&program, store, &server)?;
        let files: BTreeSet<&str> = functions.iter().map(|each| each.file.as_str()).collect();
        println!("{store:<8} {:>9} {:>5}", functions.len(), files.len());
        if !args.is_empty() {
            print_list(&functions);
        }
    }
    Ok(())
}

/// The engine is optimised in the dev profile; here its calls must stay calls.
fn build() -> Result<PathBuf, Failure> {
    let unoptimised = "profile.dev.package.ratelimit-core.opt-level=0";
    let build =
        format!("build -q -p ratelimit-bench --bin hops --features hops --config {unoptimised}");
    let build: Vec<&str> = build.split(' ').collect();
    run(&mut cargo(&build), "mend what does not compile")?;
    let target = Workspace::members()?.target_directory;
    Ok(target.join("debug").join("hops"))
}

fn count(program: &PathBuf, store: &str, server: &str) -> Result<BTreeSet<OurFunction>, Failure> {
    let advice = "see what failed above";
    let out = env::temp_dir().join(format!("hops-{}-{store}.out", std::process::id()));
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "-q", "--collect-atstart=no"])
        .arg("--toggle-collect=*collected_by_callgrind*")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .arg(store)
        .env("REDIS_SERVER_BIN", server);
    run(&mut valgrind, advice)?;
    let dump = std::fs::read_to_string(&out);
    let _ = std::fs::remove_file(&out);
    let dump = dump.map_err(|error| {
        Failure::new(
            format!("callgrind wrote no {}: {error}", out.display()),
            advice,
        )
    })?;
    Ok(our_functions(&dump))
}

fn print_list(functions: &BTreeSet<OurFunction>) {
    let mut file = "";
    for function in functions {
        if function.file != file {
            println!("  {}", function.file);
            file = &function.file;
        }
        println!("    {}", function.name);
    }
}

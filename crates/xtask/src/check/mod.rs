//! The checks that need no server.

mod copies;
mod cycles;
mod doc_ratio;
mod duplicate;
mod exceptions;
mod fences;
mod globs;
mod imports;
mod layering;
mod licence;
mod links;
mod lua;
mod package;
mod path;
mod prose;
mod root_names;
mod rust;
mod rust_file;
mod source;
mod spdx;
mod step;
mod summary;
mod token;
mod tree;
mod type_names;
mod words;

pub(crate) use links::resolve;
pub(crate) use step::{help, run};

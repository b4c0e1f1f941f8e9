//! The checks that need no server.

mod copies;
mod cycles;
mod doc_ratio;
mod duplicate;
mod exceptions;
mod features;
mod fences;
mod front_page;
mod globs;
mod imports;
mod layering;
mod licence;
pub(crate) mod links;
mod lua;
mod package;
mod page_copy;
mod pages;
mod path;
mod prose;
mod root_names;
mod rust;
mod rust_file;
mod rustdoc_links;
mod search_terms;
mod source;
mod spdx;
mod step;
mod summary;
mod token;
mod tree;
mod type_names;
mod words;

pub(crate) use step::{help, run};

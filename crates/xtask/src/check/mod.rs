//! The checks that need no server.

mod duplicate;
mod features;
mod fences;
mod files;
mod front_page;
mod licence;
pub(crate) mod links;
mod lua;
mod minimal;
mod package;
mod page_copy;
mod pages;
mod rust;
mod rust_file;
mod rustdoc_links;
mod source;
mod spdx;
mod step;
mod summary;

pub(crate) use step::{help, run};

//! What a machine can check without a server.

mod duplicate;
mod imports;
mod layering;
mod licence;
mod lua;
mod package;
mod rust;
mod source;
mod spdx;
mod step;
mod tree;

pub(crate) use step::{help, run};

//! The model against the vectors, worked examples, a history of hits, and the laws.

mod examples;
mod history;
mod laws;
mod vectors;

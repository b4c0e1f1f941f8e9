//! The model against the vectors, worked examples, a history of hits, and the laws.

mod examples;
mod extended_examples;
mod history;
mod laws;
mod prefetch_laws;
mod settle_laws;
mod vectors;

//! Random queries, and the samples that they select.
//!
//! Two generators: [`Generator`] covers the language by kind, with suitable operands; [`Grammar`]
//! expands the rules of a grammar to deeper and unusual combinations.

mod function_rules;
mod generator;
mod grammar;
mod native;
mod native_queries;
mod native_rules;
mod operand_rules;
mod parts;
mod random;
mod rules;
mod samples;

pub use generator::Generator;
pub use grammar::Grammar;
pub use parts::{Category, parts};
pub use random::Random;
pub use samples::{SPAN_MS, START_MS, samples};

/// Data that queries select.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operands {
    /// Only floats.
    Floats,
    /// Mostly native histograms, and the functions for them.
    Histograms,
}

/// A query.
#[derive(Debug)]
pub struct Query {
    /// Query text.
    pub text: String,
    /// True if the order of an instant query's result is defined.
    pub is_ordered: bool,
}

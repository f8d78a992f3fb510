//! Random queries, and the samples that they run on.
//!
//! Two generators: [`Generator`] goes through the language kind by kind, on operands that fit;
//! [`Grammar`] expands the rules of a grammar, deeper, and combines unusual parts.

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

/// Operands of queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operands {
    /// Floats alone.
    Floats,
    /// Native histograms for the most part, and what is there for them.
    Histograms,
}

/// A query.
#[derive(Debug)]
pub struct Query {
    /// Its text.
    pub text: String,
    /// True if an instant query promises an order.
    pub is_ordered: bool,
}

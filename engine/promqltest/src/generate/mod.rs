//! Random queries, and the samples that they run on.
//!
//! Two generators: [`Generator`] goes through the language kind by kind, on operands that fit;
//! [`Grammar`] expands the rules of a grammar, deeper, and combines what nobody would write.

mod generator;
mod grammar;
mod parts;
mod random;
mod samples;

pub use generator::Generator;
pub use grammar::Grammar;
pub use parts::{Category, parts};
pub use random::Random;
pub use samples::{SPAN_MS, START_MS, samples};

/// A query.
#[derive(Debug)]
pub struct Query {
    /// Its text.
    pub text: String,
    /// Whether an instant query promises an order.
    pub is_ordered: bool,
}

//! PromQL over columnar tiles.
//!
//! A query is parsed ([`parse`]), planned ([`plan`]), loaded through the read seam of the
//! `model` crate, and executed over tiles ([`exec`]). Async stops once the bytes are in memory.

pub mod annotations;
pub mod catalog;
mod engine;
pub mod error;
pub mod exec;
pub mod parse;
pub mod plan;
pub mod result;
pub mod result_cache;

pub mod span;
pub mod stack;
pub mod steps;
pub mod tile;

pub use annotations::{Annotation, Annotations, Severity};
pub use engine::{Engine, EngineOptions, QueryOptions, QueryRequest, When};
pub use error::QueryError;
pub use model::number_text;
pub use result::{QueryOutput, Value};

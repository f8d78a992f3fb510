//! Runs the scripts of Prometheus' PromQL test language.
//!
//! [`script`] parses a script, [`runner`] loads its data into a source from the caller and compares
//! the result of each `eval` with the expectation. Our own scripts are in `cases/`.
//!
//! Source: `promql/promqltest` of Prometheus, its README and its runner.

mod compare;
mod data;
mod duration;
mod expect;
pub mod generate;
mod histogram;
mod pin;
pub mod runner;
pub mod script;
mod series;
mod walk;

pub use compare::almost_equal;
pub use data::Dataset;
pub use histogram::{CounterResetHint, Histogram};
pub use runner::{EvalReport, Failure, run_script};
pub use script::{Script, ScriptError};
pub use series::SeriesValue;

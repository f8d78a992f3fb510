//! Runs the scripts of Prometheus' PromQL test language.
//!
//! A script is parsed ([`script`]), its data is loaded into a source that the caller makes,
//! and each `eval` is compared with what the script expects ([`runner`]). Scripts of our own
//! stand in `cases/`.
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

//! Endpoints for operators.

mod lifecycle;
mod pprof;
mod tsdb;

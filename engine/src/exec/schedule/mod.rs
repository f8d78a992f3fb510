//! Scheduling: the worker pool of an engine, and the slots that its queries share.

pub mod fair;
mod kernel;
pub mod worker_pool;

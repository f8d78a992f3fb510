//! Profiles of CPU time and memory of this process, for `go tool pprof` and `promtool debug`.
//!
//! ```text
//! CPU    kernel/cpu_timer ─ pipe ─→ cpu    counts by stack ┐
//!                                                          ├→ report → symbols, proto
//! heap   kernel/watched_allocator → heap   bytes by stack  ┘
//! ```
//!
//! Samples are addresses until a profile is written. Inlined functions have no own frame, because
//! release builds have symbols but no debug information. There are no profiles of locks or threads.

mod address_set;
pub(crate) mod cpu;
pub mod heap;
mod proto;
pub(crate) mod report;
mod symbols;

#[cfg(test)]
pub(crate) mod tests;

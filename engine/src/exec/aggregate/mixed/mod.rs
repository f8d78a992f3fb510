//! Aggregations over series with native histograms.
//!
//! Prometheus adds the series of a group in sequence, and its annotations depend on their order, so
//! stripes of rows are processed in order. A [`wave`] consists of consecutive stripes, one per
//! thread: their tiles are read in parallel, then processed in parallel by step, because steps are
//! independent. Memory holds the tiles of one wave, the output, and the state of the one group that
//! continues in the next wave, at all steps.
//!
//! ```text
//! rows by group   A A A A│A B B C│C C C C│C D …     wave 1: A B, begins C    wave 2: continues C
//!                 stripe │stripe │stripe │
//!                 └── wave 1 ───┘ └── wave 2 ─
//! ```

pub(super) mod count_values;
pub(super) mod limit;
mod partial;
mod rows;
pub(super) mod sum;
mod wave;

pub(super) use partial::Total;

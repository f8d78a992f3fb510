//! Aggregations over series with native histograms.
//!
//! Prometheus adds the series of a group one after the other, and what it warns of depends on
//! their order; so stripes of rows are folded in their order. Some neighbouring stripes, one a
//! thread, make up a [`wave`]: their tiles are read in parallel, then folded in parallel over the
//! steps, which know nothing of each other. Held are the tiles of one wave, the output, and the
//! state at all steps of the one group that goes on in the next wave.
//!
//! ```text
//! rows by group   A A A A│A B B C│C C C C│C D …     wave 1: A B, begins C    wave 2: goes on with
//! C                 stripe │stripe │stripe │                 └── wave 1 ───┘ └── wave 2 ─
//! ```

pub(super) mod count_values;
pub(super) mod limit;
mod partial;
mod rows;
pub(super) mod sum;
mod wave;

pub(super) use partial::Total;

//! Cache of decoded floats for later queries.
//!
//! A run of samples that no longer changes (a frame of the head, a series of a sealed block) has a
//! [`Slot`]. The first query decodes the run and puts its [`Column`] there; later queries read
//! that. The [`ColumnCache`] limits the size of all slots together.
//!
//! Histograms are not cached: each query decodes them.

mod cache;
mod column;
mod extremes;
mod find;
mod lookup;
mod packed;
mod starts;
mod stretches;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use cache::{
    BlockKey, BlockSlots, ColumnCache, ColumnSlot, Evict, Eviction, HeldBytes, KeptColumn,
    SelectionColumns, Slot,
};
pub(crate) use column::Column;
pub(crate) use extremes::extreme_of;
pub(crate) use find::FoundSamples;
pub(crate) use stretches::Stretch;
pub(crate) use values::WholeSum;

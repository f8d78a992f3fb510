//! Decoded floats of what queries have read, kept for the next query.
//!
//! A run of samples that does not change any more (a frame of the head, a series of a sealed
//! block) has a [`Slot`]. Whoever decodes the run puts its [`Column`] there; whoever comes next
//! finds it and decodes nothing. The [`ColumnCache`] bounds what all slots hold together.
//!
//! Histograms and floats with starts are not kept: they are decoded for each query.

mod cache;
mod column;
#[cfg(test)]
mod tests;

pub(crate) use cache::{BlockKey, BlockSlots, ColumnCache, ColumnPlace, KeptColumn, Slot};
pub(crate) use column::Column;

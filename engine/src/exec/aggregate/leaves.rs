//! Division of a group's rows into leaves, so that no sum depends on the loaded series.
//!
//! If rows were divided by index, an additional series would move all later cuts, even without a
//! value at a step. Sums of floats in another order differ in the last bits. The leaf of a series
//! depends only on its labels.

use std::ops::Range;

use model::hash::xxh64;
use model::{Checkpoint, prefetch};

use crate::error::QueryError;
use crate::exec::aggregate::group::Groups;
use crate::exec::operator::{Context, LABELS_AHEAD, SeriesMeta};

/// Maximum leaves of a group if there may be many groups: merging a leaf costs as much as a row.
const LEAVES: usize = 4;
/// Maximum leaves if all series are one group, so that up to 16 threads can share it.
const LEAVES_OF_ALL: usize = 16;

/// Rows of groups, sorted by group and leaf.
///
/// Invariant: leaves are not empty; rows in a leaf are in the order of the group.
#[derive(Debug)]
pub(super) struct Leaves {
    /// Series, sorted by group and leaf.
    pub(super) order: Vec<u32>,
    /// Group of each leaf.
    groups: Vec<u32>,
    /// First row of each leaf, and the index after the last row.
    starts: Vec<u32>,
}

impl Leaves {
    /// Divides the groups of `series` into leaves.
    ///
    /// Errors: the limits of the query.
    pub(super) fn new(
        ctx: &Context,
        series: &[SeriesMeta],
        groups: &Groups,
    ) -> Result<Leaves, QueryError> {
        let count = leaf_count(groups);
        let mut checkpoint = Checkpoint::new(&ctx.budget);
        let mut leaves = Leaves::without_rows(groups);
        let mut dealt: [Vec<u32>; LEAVES_OF_ALL] = Default::default();
        for group in 0..groups.len() {
            let rows = groups.rows(group);
            if rows.len() == 1 {
                leaves.push(group, &groups.order[rows]);
                continue;
            }
            for row in rows {
                if let Some(ahead) = groups.order.get(row + LABELS_AHEAD) {
                    prefetch(series[*ahead as usize].labels.as_bytes());
                }
                let index = groups.order[row];
                let labels = series[index as usize].labels.as_bytes();
                checkpoint.work(labels.len())?;
                dealt[xxh64(labels) as usize % count].push(index);
            }
            for leaf in dealt.iter_mut().filter(|leaf| !leaf.is_empty()) {
                leaves.push(group, leaf);
                leaf.clear();
            }
        }
        leaves.starts.push(leaves.order.len() as u32);
        Ok(leaves)
    }

    /// Divides groups by position of rows, for folds that do not depend on their order.
    pub(super) fn by_place(groups: &Groups) -> Leaves {
        let count = leaf_count(groups);
        let mut leaves = Leaves::without_rows(groups);
        for group in 0..groups.len() {
            let rows = &groups.order[groups.rows(group)];
            for leaf in rows.chunks(rows.len().div_ceil(count).max(1)) {
                leaves.push(group, leaf);
            }
        }
        leaves.starts.push(leaves.order.len() as u32);
        leaves
    }

    /// Returns empty leaves with capacity for `groups`.
    fn without_rows(groups: &Groups) -> Leaves {
        let leaf_max = leaf_max(groups);
        Leaves {
            order: Vec::with_capacity(groups.order.len()),
            groups: Vec::with_capacity(leaf_max),
            starts: Vec::with_capacity(leaf_max + 1),
        }
    }

    /// Returns the size of the leaves of `groups` in memory.
    pub(super) fn bytes_max(groups: &Groups) -> usize {
        (groups.order.len() + 2 * leaf_max(groups) + 1) * size_of::<u32>()
    }

    fn push(&mut self, group: usize, rows: &[u32]) {
        self.groups.push(group as u32);
        self.starts.push(self.order.len() as u32);
        self.order.extend_from_slice(rows);
    }

    /// Returns the number of leaves.
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns the group of a leaf.
    pub(super) fn group(&self, leaf: usize) -> usize {
        self.groups[leaf] as usize
    }

    /// Returns the rows of a leaf.
    pub(super) fn rows(&self, leaf: usize) -> Range<usize> {
        self.starts[leaf] as usize..self.starts[leaf + 1] as usize
    }

    /// Returns whether a leaf is the first of its group.
    pub(super) fn is_first(&self, leaf: usize) -> bool {
        leaf == 0 || self.groups[leaf - 1] != self.groups[leaf]
    }

    /// Returns whether a leaf is the last of its group.
    pub(super) fn is_last(&self, leaf: usize) -> bool {
        leaf + 1 == self.len() || self.groups[leaf + 1] != self.groups[leaf]
    }

    /// Returns the leaves that contain at least one of `rows`.
    pub(super) fn touching(&self, rows: &Range<usize>) -> Range<usize> {
        let first = self.starts.partition_point(|start| *start as usize <= rows.start) - 1;
        let end = self.starts.partition_point(|start| (*start as usize) < rows.end);
        first..end
    }

    /// Returns the groups all of whose leaves are in `leaves`.
    pub(super) fn whole_groups(&self, leaves: Range<usize>) -> Range<usize> {
        let (first, last) = (leaves.start, leaves.end - 1);
        let start = self.group(first) + usize::from(!self.is_first(first));
        let end = self.group(last) + usize::from(self.is_last(last));
        start..end.max(start)
    }
}

/// Returns the maximum number of leaves of all groups.
fn leaf_max(groups: &Groups) -> usize {
    groups.order.len().min(groups.len() * leaf_count(groups))
}

/// Returns the maximum number of leaves of a group.
fn leaf_count(groups: &Groups) -> usize {
    if groups.is_all { LEAVES_OF_ALL } else { LEAVES }
}

//! Blocks of a metric that are read together, with unwanted ones between them.
//!
//! A series of a metric has a block in every window. Its blocks are often less than a request
//! apart, but most of what is read may be blocks of other series. These are fetched then, and
//! neither decoded nor put into the block cache.

use std::ops::RangeInclusive;

use bytes::Bytes;
use model::{Budget, Reservation};

use crate::error::StoreError;
use crate::lsm::{Lsm, READ_AHEAD_BYTES, SCAN_BYTES_MAX};
use crate::value;

/// Bytes of unwanted blocks between two wanted ones up to which all are read together: another
/// request takes longer than these bytes.
const GAP_BYTES_MAX: u64 = 1 << 20;

/// Block of a run.
pub(super) struct RunBlock {
    /// Its key if it is wanted.
    pub(super) wanted: Option<Vec<u8>>,
    pub(super) bytes: u64,
}

/// Blocks that are read together.
pub(super) struct Span {
    /// Between groups are unwanted blocks.
    groups: Vec<BlockGroup>,
}

/// Adjacent blocks, at least one.
struct BlockGroup {
    /// Bytes of the unwanted blocks since the group before; 0 if it is the first one.
    gap_bytes: u64,
    keys: Vec<Vec<u8>>,
    bytes: u64,
}

impl BlockGroup {
    fn key_range(&self) -> RangeInclusive<&[u8]> {
        let (first, last) = (self.keys.first(), self.keys.last());
        first.map_or(&[][..], Vec::as_slice)..=last.map_or(&[][..], Vec::as_slice)
    }
}

impl Span {
    pub(super) fn has_gaps(&self) -> bool {
        self.groups.len() > 1
    }

    /// Returns the bytes of the unwanted blocks.
    fn gap_bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.gap_bytes).sum()
    }

    /// Returns the bytes of the wanted blocks.
    fn wanted_bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.bytes).sum()
    }

    /// Returns whether most of the bytes are of unwanted blocks.
    fn is_sparse(&self) -> bool {
        self.gap_bytes() > self.wanted_bytes()
    }

    /// Splits a sparse span into pieces that are each fetched by one request.
    fn in_pieces(self) -> Vec<Span> {
        if !self.is_sparse() {
            return vec![self];
        }
        let mut pieces: Vec<Span> = Vec::new();
        let mut bytes = 0;
        for mut group in self.groups {
            bytes += group.gap_bytes + group.bytes;
            match pieces.last_mut() {
                Some(piece) if bytes <= READ_AHEAD_BYTES as u64 => piece.groups.push(group),
                _ => {
                    bytes = group.bytes;
                    group.gap_bytes = 0;
                    pieces.push(Span { groups: vec![group] });
                }
            }
        }
        pieces
    }

    /// Reads the wanted blocks. Without memory for unwanted ones, these are not read.
    pub(super) async fn read(
        &self,
        lsm: &Lsm,
        budget: &Budget,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let (gap_bytes, is_sparse) = (self.gap_bytes(), self.is_sparse());
        let of_copied = if is_sparse { self.wanted_bytes() } else { 0 };
        let mut memory = Reservation::empty(budget);
        if memory.grow((gap_bytes + of_copied).min(SCAN_BYTES_MAX)).is_err() {
            return self.read_groups(lsm).await;
        }
        let held = match is_sparse {
            true => {
                let groups: Vec<_> = self.groups.iter().map(BlockGroup::key_range).collect();
                lsm.hold_spans(&groups).await?
            }
            false => None,
        };
        let Some(held) = held else {
            return scan(lsm, self.groups.iter().flat_map(|group| &group.keys)).await;
        };
        let blocks = self.read_groups(lsm).await;
        drop(held);
        blocks
    }

    async fn read_groups(&self, lsm: &Lsm) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let mut blocks = Vec::new();
        for group in &self.groups {
            blocks.extend(scan(lsm, group.keys.iter()).await?);
        }
        Ok(blocks)
    }
}

/// Returns the wanted blocks of a metric. `blocks` are in the order of their keys.
pub(super) fn of_blocks(blocks: impl Iterator<Item = RunBlock>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut gap_bytes = u64::MAX;
    for RunBlock { wanted, bytes } in blocks {
        let Some(key) = wanted else {
            gap_bytes = gap_bytes.saturating_add(bytes);
            continue;
        };
        match spans.last_mut() {
            Some(span) if gap_bytes <= GAP_BYTES_MAX => match span.groups.last_mut() {
                Some(group) if gap_bytes == 0 => {
                    group.keys.push(key);
                    group.bytes += bytes;
                }
                _ => span.groups.push(BlockGroup { gap_bytes, keys: vec![key], bytes }),
            },
            _ => {
                let group = BlockGroup { gap_bytes: 0, keys: vec![key], bytes };
                spans.push(Span { groups: vec![group] });
            }
        }
        gap_bytes = 0;
    }
    spans.into_iter().flat_map(Span::in_pieces).collect()
}

/// Reads some blocks, given by their keys in order, by one scan.
async fn scan<'a>(
    lsm: &Lsm,
    wanted: impl Iterator<Item = &'a Vec<u8>>,
) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
    let wanted: Vec<&[u8]> = wanted.map(Vec::as_slice).collect();
    let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else {
        return Ok(Vec::new());
    };
    let end = [last, &[0][..]].concat();
    let mut blocks = Vec::with_capacity(wanted.len());
    let mut scan = lsm.scan(first, &end).await?;
    for key in wanted {
        loop {
            match scan.next().await? {
                Some((found, bytes)) if found == *key => {
                    // A copy: a value keeps all bytes of its request in memory.
                    blocks.push((found, Bytes::copy_from_slice(&bytes)));
                    break;
                }
                // An unwanted block, or one of an unfinished seal.
                Some((found, _)) if found < *key => {}
                _ => return Err(value::corrupt(key, "block is missing")),
            }
        }
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Groups of spans: their gaps, numbers of blocks and bytes.
    fn spans(blocks: &[(bool, u64)]) -> Vec<Vec<(u64, usize, u64)>> {
        let block = |(at, (is_wanted, bytes)): (usize, &(bool, u64))| RunBlock {
            wanted: is_wanted.then(|| vec![at as u8]),
            bytes: *bytes,
        };
        let spans = of_blocks(blocks.iter().enumerate().map(block));
        let keys: Vec<u8> =
            spans.iter().flat_map(|s| &s.groups).flat_map(|g| g.keys.concat()).collect();
        let wanted = blocks.iter().enumerate().filter(|(_, (is_wanted, _))| *is_wanted);
        assert!(keys.iter().copied().eq(wanted.map(|(at, _)| at as u8)), "{keys:?}");
        let of_group = |group: &BlockGroup| (group.gap_bytes, group.keys.len(), group.bytes);
        spans.iter().map(|span| span.groups.iter().map(of_group).collect()).collect()
    }

    #[test]
    fn near_blocks_are_a_span_and_adjacent_ones_a_group() {
        assert!(spans(&[]).is_empty() && spans(&[(false, 5)]).is_empty());
        let near = [(false, 9), (true, 3), (true, 4), (false, MIB - 1), (false, 1), (true, 5)];
        assert_eq!(spans(&near), [[(0, 2, 7), (MIB, 1, 5)]]);
        let far = [(true, 3), (false, MIB), (false, 1), (true, 5), (false, 8)];
        assert_eq!(spans(&far), [[(0, 1, 3)], [(0, 1, 5)]]);
    }

    #[test]
    fn only_sparse_spans_are_split_into_requests() {
        // 12 windows of a large metric.
        let of_one = [(true, 10_000), (false, 800_000)].repeat(12);
        let [first, second] = &spans(&of_one)[..] else { panic!() };
        let bytes =
            |groups: &[(u64, usize, u64)]| groups.iter().map(|(gap, _, own)| gap + own).sum();
        let both: [u64; 2] = [bytes(first), bytes(second)];
        assert!(both[0] <= 6 * MIB && both[0] + 810_000 > 6 * MIB, "{both:?}");
        assert_eq!((first[0].0, second[0].0, first.len() + second.len()), (0, 0, 12));
        let dense = [(true, 800_000), (false, 10_000)].repeat(12);
        assert_eq!(spans(&dense).iter().map(Vec::len).collect::<Vec<_>>(), [12]);
        // A group is never split.
        let large = [(true, 4 * MIB), (true, 4 * MIB)];
        assert_eq!(spans(&large), [[(0, 2, 8 * MIB)]]);
    }
}

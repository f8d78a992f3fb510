//! Columns of times that series of a block share: the series of a target are scraped at the same
//! times. A column is stored once, with the first series that has it.

use std::collections::HashMap;
use std::ops::Range;

use super::take_id;
use crate::chunk::{CHUNK_PADDING_BYTES, times_columns};
use crate::varint::{push_varint, take_count, take_varint};

/// Minimum length of a shared column: its description takes five to seven bytes.
const COLUMN_BYTES_MIN: usize = 32;
/// Columns are shared if they are at least this part of the frames: readers copy all frames of such
/// a block.
const SHARED_PART: usize = 8;
/// Maximum number of shared bytes of a block.
const SHARED_BYTES_MAX: usize = 1 << 20;

/// Shared columns of each series of a block.
#[derive(Debug)]
pub(super) struct SharedTimes(Vec<SharedColumns>);

/// Columns of times that a series shares with an earlier one.
#[derive(Debug)]
struct SharedColumns {
    /// Distance to the earlier series, in series; 0 if nothing is shared.
    distance: usize,
    columns: Vec<SharedColumn>,
    /// Length of all frames of the series.
    frames_len: usize,
}

/// Range of shared bytes.
#[derive(Debug)]
struct SharedColumn {
    /// Number of bytes between the range before and this one.
    own_len: usize,
    /// Number of such bytes in the earlier series.
    skipped_len: usize,
    len: usize,
}

impl SharedTimes {
    /// Returns the shared columns of series whose frames are end to end in `frames`; `None` if
    /// sharing them would save little.
    pub(super) fn find(series: &[(u32, usize)], frames: &[u8]) -> Option<SharedTimes> {
        let mut found: Vec<SharedColumns> = Vec::new();
        let mut known: Vec<TimesColumns<'_>> = Vec::new();
        // Index of the first series with a first column.
        let mut first_with: HashMap<&[u8], usize> = HashMap::new();
        let mut rest = frames;
        for (at, (_, frames_len)) in series.iter().enumerate() {
            let (frames, tail) = rest.split_at(*frames_len);
            rest = tail;
            let columns: Vec<Range<usize>> =
                times_columns(frames).filter(|column| column.len() >= COLUMN_BYTES_MIN).collect();
            let first = columns.first().map(|column| &frames[column.clone()]);
            let earlier = first.map_or(at, |first| *first_with.entry(first).or_insert(at));
            known.push(TimesColumns { frames, columns });
            let shared = shared_columns(&known[earlier], &known[at]);
            let (distance, columns) =
                if earlier < at { (at - earlier, shared) } else { (0, Vec::new()) };
            found.push(SharedColumns { distance, columns, frames_len: *frames_len });
        }
        let columns = found.iter().flat_map(|shared| &shared.columns);
        let shared_len = columns.map(|column| column.len).sum::<usize>();
        let is_worth_it = shared_len > 0
            && shared_len * SHARED_PART >= frames.len()
            && shared_len <= SHARED_BYTES_MAX;
        is_worth_it.then_some(SharedTimes(found))
    }

    /// Appends the shared columns of a series, after the length of its frames.
    pub(super) fn describe(&self, series: usize, header: &mut Vec<u8>) {
        let SharedColumns { distance, columns, .. } = &self.0[series];
        push_varint(header, *distance as u64);
        if *distance > 0 {
            push_varint(header, columns.len() as u64);
            for SharedColumn { own_len, skipped_len, len } in columns {
                for number in [own_len, skipped_len, len] {
                    push_varint(header, *number as u64);
                }
            }
        }
    }

    /// Appends the bytes of all frames that are not shared.
    pub(super) fn write_own(&self, mut frames: &[u8], out: &mut Vec<u8>) {
        for SharedColumns { columns, frames_len, .. } in &self.0 {
            let (mut rest, tail) = frames.split_at(*frames_len);
            for SharedColumn { own_len, len, .. } in columns {
                out.extend_from_slice(&rest[..*own_len]);
                rest = &rest[own_len + len..];
            }
            out.extend_from_slice(rest);
            frames = tail;
        }
    }
}

/// Frames of a series, and their columns of times.
struct TimesColumns<'a> {
    frames: &'a [u8],
    columns: Vec<Range<usize>>,
}

/// Returns the columns of a series that are equal to those of an earlier one.
fn shared_columns(earlier: &TimesColumns<'_>, own: &TimesColumns<'_>) -> Vec<SharedColumn> {
    let mut shared = Vec::new();
    let (mut end, mut earlier_end) = (0, 0);
    for (theirs, column) in earlier.columns.iter().zip(&own.columns) {
        if earlier.frames[theirs.clone()] == own.frames[column.clone()] {
            let (own_len, skipped_len) = (column.start - end, theirs.start - earlier_end);
            shared.push(SharedColumn { own_len, skipped_len, len: column.len() });
            (end, earlier_end) = (column.end, theirs.end);
        }
    }
    shared
}

/// Ids of the series of a block, and ranges of their frames.
type Series = Vec<(u32, Range<usize>)>;

/// Decodes a header after its version, and inserts shared columns into the frames. Returns all
/// frames, with the padding of decoders.
///
/// Errors: the header does not describe these bytes.
pub(super) fn expand(mut header: &[u8], mut frames: &[u8]) -> Result<(Series, Vec<u8>), String> {
    let header = &mut header;
    let (stored_len, all_len) = (frames.len(), take_len(header)?);
    if all_len > stored_len + SHARED_BYTES_MAX {
        return Err(format!("{all_len} bytes of frames are made of {stored_len}"));
    }
    let mut all = Vec::with_capacity(all_len + CHUNK_PADDING_BYTES);
    let mut series = Series::new();
    let mut before = -1;
    for at in 0..take_count(header)? {
        let id = take_id(header, before)?;
        before = i64::from(id);
        let start = all.len();
        let len = take_len(header)?;
        if len > all_len - start {
            return Err(format!("frames of series {id} run past the end"));
        }
        let end = start + len;
        let outside = || format!("shared bytes of series {id} lie outside of its frames");
        let distance = take_len(header)?;
        let column_count = if distance > 0 { take_count(header)? } else { 0 };
        let earlier = at.checked_sub(distance).ok_or_else(outside)?;
        let mut theirs = series.get(earlier).map_or(0..0, |(_, range)| range.clone());
        for _ in 0..column_count {
            let [own_len, skipped_len, len] =
                [take_len(header)?, take_len(header)?, take_len(header)?];
            let own_fits = own_len <= end - all.len() && len <= end - all.len() - own_len;
            let fits = own_fits && skipped_len <= theirs.len() && len <= theirs.len() - skipped_len;
            let own = frames.split_off(..own_len).filter(|_| fits).ok_or_else(outside)?;
            all.extend_from_slice(own);
            theirs.start += skipped_len;
            all.extend_from_within(theirs.start..theirs.start + len);
            theirs.start += len;
        }
        let own = frames.split_off(..end - all.len()).ok_or_else(outside)?;
        all.extend_from_slice(own);
        series.push((id, start..end));
    }
    if !frames.is_empty() || all.len() != all_len {
        return Err("the frames of all series have another length".to_owned());
    }
    all.extend_from_slice(&[0; CHUNK_PADDING_BYTES]);
    Ok((series, all))
}

fn take_len(rest: &mut &[u8]) -> Result<usize, String> {
    Ok(usize::try_from(take_varint(rest)?).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use model::TimeRange;
    use proptest::prelude::*;

    use super::*;
    use crate::block::{BlockBuilder, DecodedBlock};
    use crate::chunk::{PackedEncoder, encode};

    const KEY: &[u8] = b"a key";

    /// Returns the value of a block with these frames.
    fn stored(all: &[Vec<u8>]) -> Bytes {
        let mut builder = BlockBuilder::new(all.len());
        for (id, frames) in all.iter().enumerate() {
            builder.push(2 * id as u32, frames, TimeRange::new(0, 1));
        }
        builder.finish(KEY.to_vec()).values.swap_remove(0).1.into()
    }

    fn decoded(stored: &Bytes) -> Vec<(u32, Vec<u8>)> {
        let block = DecodedBlock::new(KEY, stored).unwrap();
        block.frames().map(|(id, frames)| (id, frames.to_vec())).collect()
    }

    /// Appends frames of a counter, scraped up to half a second off, by one of some targets.
    fn push_counter(target: u64, factor: u64, frames: &mut Vec<u8>) {
        let off = |at: u64| (at + 1).wrapping_mul(target + 1).wrapping_mul(0x9e37_79b9) >> 7 & 511;
        let times: Vec<i64> = (0..480).map(|at| (at * 15_000 + off(at)) as i64).collect();
        let values: Vec<f64> = (0..480).map(|at| (at * factor) as f64).collect();
        PackedEncoder::default().encode(&times, &values, &[], frames);
    }

    fn counter(target: u64, factor: u64) -> Vec<u8> {
        let mut frames = Vec::new();
        push_counter(target, factor, &mut frames);
        frames
    }

    #[test]
    fn times_of_a_target_are_stored_once() {
        let one = counter(1, 7).len();
        let all: Vec<Vec<u8>> = (0..20).map(|series| counter(series % 2, series + 3)).collect();
        let value = stored(&all);
        assert!(value.len() < 4 * one, "{} bytes, {one} of a series", value.len());
        let ids = (0..20).map(|id| 2 * id);
        assert_eq!(decoded(&value), ids.zip(all).collect::<Vec<_>>());
    }

    #[test]
    fn blocks_are_not_copied_to_save_little() {
        // Of so many series, the second has the times of the first.
        for (series_count, is_shared) in [(4, true), (20, false)] {
            let all: Vec<Vec<u8>> =
                (0..series_count).map(|series: u64| counter(series.max(1), 7)).collect();
            let value = stored(&all);
            let is_longer = DecodedBlock::new(KEY, &value).unwrap().len() > value.len();
            assert_eq!(is_longer, is_shared, "{series_count}");
        }
    }

    #[test]
    fn damaged_descriptions_are_errors() {
        let frames: [u8; 40] = std::array::from_fn(|at| at as u8);
        // 50 bytes of two series. One has 30 bytes; the other has 5 own ones, 10 of the first
        // series after 3 others, and 5 more.
        let good = [50, 2, 0, 30, 0, 0, 20, 1, 1, 5, 3, 10];
        let (series, all) = expand(&good, &frames).unwrap();
        assert_eq!(series, [(0, 0..30), (1, 30..50)]);
        assert_eq!(all[..30], frames[..30]);
        assert_eq!(all[30..50], [&frames[30..35], &frames[3..13], &frames[35..]].concat());
        for (at, value) in
            [(0, 49), (0, 51), (3, 41), (6, 19), (6, 21), (7, 2), (9, 21), (10, 21), (11, 28)]
        {
            let mut bad = good;
            bad[at] = value;
            assert!(expand(&bad, &frames).is_err(), "{value} at {at}");
        }
        for len in 0..good.len() {
            assert!(expand(&good[..len], &frames).is_err(), "{len} bytes");
        }
        let long = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1, 0, 0, 0];
        assert!(expand(&long, &[]).unwrap_err().contains("are made of 0"));
    }

    proptest! {
        #[test]
        fn random_headers_are_never_a_panic(
            header in prop::collection::vec(prop_oneof![0u8..4, 0u8..40, any::<u8>()], 0..60),
            frames in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            if let Ok((series, all)) = expand(&header, &frames) {
                prop_assert!(all.len() >= frames.len() + CHUNK_PADDING_BYTES);
                prop_assert!(series.last().is_none_or(|(_, range)| range.end <= all.len()));
            }
        }

        #[test]
        fn frames_come_back(
            series in prop::collection::vec(
                prop::collection::vec((0u64..3, 1u64..5, any::<bool>()), 0..4),
                1..20,
            ),
        ) {
            let frames_of = |parts: Vec<(u64, u64, bool)>| {
                let mut frames = Vec::new();
                for (target, factor, has_gorilla) in parts {
                    if has_gorilla {
                        encode(&[-20, -10], &[1.0, 2.0], &mut frames);
                    }
                    push_counter(target, factor, &mut frames);
                }
                frames
            };
            let all: Vec<Vec<u8>> = series.into_iter().map(frames_of).collect();
            let found = decoded(&stored(&all));
            prop_assert_eq!(found.into_iter().map(|(_, frames)| frames).collect::<Vec<_>>(), all);
        }
    }
}

//! Every key of the store, byte by byte.
//!
//! Numbers are big-endian so that bytes sort as numbers do; a partition is its number of days
//! since the epoch with the sign bit flipped. Each partition is a segment (9 bytes), and so is
//! each log epoch (5 bytes), because they are deleted whole; all else is one segment a letter.
//!
//! ```text
//! log record      l  epoch:4  sequence:8
//! cross-partition dictionary
//!                 d  name 00 01  value 00 01  partition:8                    (empty value)
//! store           m  e                                     next and first log epoch
//!                 m  o                                     who writes to the store
//!                 m  v                                     format of the store
//!                 m  p  partition:8                        registered series of a partition
//!                 m  w  window:8                           window sealed up to this epoch
//!                 m  i  epoch:4  number:4                  intent: blocks that are not listed
//!                 m  t  epoch:4                            tombstone: what is deleted up to it
//!                 m  g  partition:8                        ids of a partition that are no more
//!                 m  b                                     first partition kept, until all before it is gone
//!                 m  c                                     records of log epochs at a start
//!                 m  f  name 00 01                         note of a tool
//!                 m  r                                     what rules have expired
//!                 m  s                                     first partition kept by size
//! metadata        n  metric 00 01                          what is known of a metric
//! exemplars       x  number:8                              those of one commit, from this on
//! partition       p  partition:8  b  metric:8  window:1  run:4  first id:4   series block
//!                 p  partition:8  c  metric:8  window:1  run:4               run directory
//!                 p  partition:8  f  page:4                                  forward index
//!                 p  partition:8  i  name 00 01  value 00 01  base id:4      postings
//! ```
//!
//! - *metric* is a hash of the metric's name ([`metric_hash`]): fixed width, and harmless where
//!   two names share one, since a block names its series by id.
//! - *window* is the place of the two hours in the day, 0 to 11; elsewhere the number of
//!   windows since the epoch, sign bit flipped.
//! - *run* is the log epoch that was sealed: of two runs of a window the later one wins.
//! - *name* and *value* are escaped, 00 to 00 ff, so that 00 01 ends them and order is kept.

use crate::window::{partition_of_window, window_in_partition};

/// The longest label name that fits a key with room to spare.
pub(crate) const NAME_BYTES_MAX: usize = 1 << 10;
/// The longest label value that fits a key even if each of its bytes has to be escaped.
pub(crate) const VALUE_BYTES_MAX: usize = 16 << 10;

/// How many bytes of a key name its segment, for whole keys and for prefixes of them.
pub(crate) fn segment_len(key: &[u8]) -> Option<usize> {
    let len = match key.first()? {
        b'p' => 9,
        b'l' => 5,
        _ => 1,
    };
    (key.len() >= len).then_some(len)
}

/// Whether a segment belongs to no day and no log epoch.
pub(crate) fn is_of_all_days(segment: &[u8]) -> bool {
    segment.len() == 1
}

fn push_ordered(key: &mut Vec<u8>, number: i64) {
    key.extend_from_slice(&(number as u64 ^ 1 << 63).to_be_bytes());
}

fn push_text(key: &mut Vec<u8>, text: &str) {
    push_text_open(key, text);
    key.extend_from_slice(&[0, 1]);
}

fn push_text_open(key: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        key.push(byte);
        if byte == 0 {
            key.push(0xff);
        }
    }
}

/// Takes an escaped text off the front of a key.
fn take_text(rest: &mut &[u8]) -> Option<String> {
    let mut text = Vec::new();
    loop {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        if *byte != 0 {
            text.push(*byte);
            continue;
        }
        let (mark, tail) = rest.split_first()?;
        *rest = tail;
        match mark {
            1 => return String::from_utf8(text).ok(),
            0xff => text.push(0),
            _ => return None,
        }
    }
}

/// The prefix of all log records.
const LOG_PREFIX: &[u8] = b"l";
/// What follows all log records.
pub(crate) const LOG_END: &[u8] = b"m";

/// A log record.
pub(crate) fn log(epoch: u32, sequence: u64) -> Vec<u8> {
    let mut key = log_epoch(epoch);
    key.extend_from_slice(&sequence.to_be_bytes());
    key
}

/// The prefix of the log records of one epoch.
pub(crate) fn log_epoch(epoch: u32) -> Vec<u8> {
    let mut key = LOG_PREFIX.to_vec();
    key.extend_from_slice(&epoch.to_be_bytes());
    key
}

/// The epoch of a log segment.
pub(crate) fn parse_log_epoch(segment: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(segment.strip_prefix(LOG_PREFIX)?.try_into().ok()?))
}

/// Epoch and sequence of a log record's key.
pub(crate) fn parse_log(key: &[u8]) -> Option<(u32, u64)> {
    let rest = key.strip_prefix(LOG_PREFIX)?;
    let (epoch, rest) = rest.split_first_chunk::<4>()?;
    let sequence: [u8; 8] = rest.try_into().ok()?;
    Some((u32::from_be_bytes(*epoch), u64::from_be_bytes(sequence)))
}

/// The format of the store; absent in the first one.
pub(crate) const FORMAT: &[u8] = b"mv";
/// The prefix of what tools have noted.
pub(crate) const NOTES_PREFIX: &[u8] = b"mf";

/// What a tool has noted under a name.
pub(crate) fn note(name: &str) -> Vec<u8> {
    let mut key = NOTES_PREFIX.to_vec();
    push_text(&mut key, name);
    key
}

/// The name of a note.
pub(crate) fn parse_note(key: &[u8]) -> Option<String> {
    let mut rest = key.strip_prefix(NOTES_PREFIX)?;
    let name = take_text(&mut rest)?;
    rest.is_empty().then_some(name)
}

/// Who writes to the store; absent once it has been closed.
pub(crate) const OWNER: &[u8] = b"mo";
/// The next log epoch, and the first one whose records count.
pub(crate) const EPOCH: &[u8] = b"me";
/// How many records the log epochs have that were replayed at the last start.
pub(crate) const RECORDS: &[u8] = b"mc";
/// Never there: deleted where a write is to say nothing.
pub(crate) const NOTHING: &[u8] = b"m-";
/// The first partition that is kept, while those before it are being deleted or the log has records
/// of them.
pub(crate) const KEPT_FROM: &[u8] = b"mb";
/// The prefix of the partitions' entries.
pub(crate) const PARTITIONS_PREFIX: &[u8] = b"mp";
/// The prefix of the windows' watermarks.
pub(crate) const WATERMARKS_PREFIX: &[u8] = b"mw";
/// The prefix of the intents.
pub(crate) const INTENTS_PREFIX: &[u8] = b"mi";

/// The first partition that is kept because the files took too much; absent without such a bound.
pub(crate) const KEPT_BY_SIZE: &[u8] = b"ms";
/// Up to when rules of the retention have expired samples; absent without rules.
pub(crate) const RULES: &[u8] = b"mr";

/// The prefix of the tombstones.
pub(crate) const TOMBSTONES_PREFIX: &[u8] = b"mt";
/// The prefix of the ids that are no more.
pub(crate) const GONE_PREFIX: &[u8] = b"mg";

/// The tombstone of a log epoch.
pub(crate) fn tombstone(epoch: u32) -> Vec<u8> {
    let mut key = TOMBSTONES_PREFIX.to_vec();
    key.extend_from_slice(&epoch.to_be_bytes());
    key
}

/// The epoch of a tombstone's key.
pub(crate) fn parse_tombstone(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(key.strip_prefix(TOMBSTONES_PREFIX)?.try_into().ok()?))
}

/// The ids of a partition that are no more.
pub(crate) fn gone(partition: i64) -> Vec<u8> {
    let mut key = GONE_PREFIX.to_vec();
    push_ordered(&mut key, partition);
    key
}

/// The entry of a partition.
pub(crate) fn partition_entry(partition: i64) -> Vec<u8> {
    let mut key = PARTITIONS_PREFIX.to_vec();
    push_ordered(&mut key, partition);
    key
}

/// The watermark of a window.
pub(crate) fn watermark(window: i64) -> Vec<u8> {
    let mut key = WATERMARKS_PREFIX.to_vec();
    push_ordered(&mut key, window);
    key
}

/// Partition or window of a key with the given prefix and nothing behind it.
pub(crate) fn parse_ordered(key: &[u8], prefix: &[u8]) -> Option<i64> {
    let number: [u8; 8] = key.strip_prefix(prefix)?.try_into().ok()?;
    Some((u64::from_be_bytes(number) ^ 1 << 63) as i64)
}

/// The intent of a batch of blocks.
pub(crate) fn intent(epoch: u32, number: u32) -> Vec<u8> {
    let mut key = INTENTS_PREFIX.to_vec();
    key.extend_from_slice(&epoch.to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The prefix of everything in a partition.
pub(crate) fn partition(partition: i64) -> Vec<u8> {
    let mut key = b"p".to_vec();
    push_ordered(&mut key, partition);
    key
}

/// The number of the partition that a segment holds.
pub(crate) fn parse_partition(segment: &[u8]) -> Option<i64> {
    parse_ordered(segment, b"p")
}

/// A stable hash of a metric's name: FNV-1a with a final mix.
pub(crate) fn metric_hash(name: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ hash >> 29
}

/// The prefix of a metric's blocks in a partition.
pub(crate) fn blocks_of_metric(partition_number: i64, metric: u64) -> Vec<u8> {
    let mut key = partition(partition_number);
    key.push(b'b');
    key.extend_from_slice(&metric.to_be_bytes());
    key
}

/// A series block.
pub(crate) fn block(metric: u64, window: i64, run: u32, first_id: u32) -> Vec<u8> {
    let mut key = blocks_of_metric(partition_of_window(window), metric);
    key.push(window_in_partition(window));
    key.extend_from_slice(&run.to_be_bytes());
    key.extend_from_slice(&first_id.to_be_bytes());
    key
}

/// The prefix of all run directories of a partition.
pub(crate) fn directories(partition_number: i64) -> Vec<u8> {
    let mut key = partition(partition_number);
    key.push(b'c');
    key
}

/// The prefix of the blocks of a partition.
pub(crate) fn blocks(partition_number: i64) -> Vec<u8> {
    let mut key = partition(partition_number);
    key.push(b'b');
    key
}

/// The prefix of a metric's run directories.
pub(crate) fn directories_of_metric(partition_number: i64, metric: u64) -> Vec<u8> {
    let mut key = directories(partition_number);
    key.extend_from_slice(&metric.to_be_bytes());
    key
}

/// A run directory.
pub(crate) fn directory(metric: u64, window: i64, run: u32) -> Vec<u8> {
    let mut key = directories_of_metric(partition_of_window(window), metric);
    key.push(window_in_partition(window));
    key.extend_from_slice(&run.to_be_bytes());
    key
}

/// The run directory that lists a block, by the block's key.
pub(crate) fn directory_of_block(block: &[u8]) -> Option<Vec<u8>> {
    let mut key = block.get(..block.len().checked_sub(4)?)?.to_vec();
    let kind = key.get_mut(9).filter(|kind| **kind == b'b')?;
    *kind = b'c';
    Some(key)
}

/// The partition of a run directory; none for any other key.
pub(crate) fn partition_of_directory(key: &[u8]) -> Option<i64> {
    let (partition, rest) = key.split_at_checked(9)?;
    rest.starts_with(b"c").then(|| parse_partition(partition))?
}

/// Whether a key tells something of the store itself.
pub(crate) fn is_meta(key: &[u8]) -> bool {
    key.starts_with(b"m")
}

/// Metric, place of the window and run of a run directory's key.
pub(crate) fn parse_directory(key: &[u8]) -> Option<(u64, u8, u32)> {
    let rest = key.get(10..)?;
    let (metric, rest) = rest.split_first_chunk::<8>()?;
    let (window, rest) = rest.split_first()?;
    let run: [u8; 4] = rest.try_into().ok()?;
    Some((u64::from_be_bytes(*metric), *window, u32::from_be_bytes(run)))
}

/// The prefix of the forward index of a partition.
pub(crate) fn forward(partition_number: i64) -> Vec<u8> {
    let mut key = partition(partition_number);
    key.push(b'f');
    key
}

/// A page of the forward index.
pub(crate) fn forward_page(partition_number: i64, page: u32) -> Vec<u8> {
    let mut key = forward(partition_number);
    key.extend_from_slice(&page.to_be_bytes());
    key
}

/// The page of a forward index key.
pub(crate) fn parse_forward_page(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(key.get(10..)?.try_into().ok()?))
}

/// The prefix of all postings of a partition.
pub(crate) fn postings(partition_number: i64) -> Vec<u8> {
    let mut key = partition(partition_number);
    key.push(b'i');
    key
}

/// The prefix of the postings of one label name.
pub(crate) fn postings_of_name(partition_number: i64, name: &str) -> Vec<u8> {
    let mut key = postings(partition_number);
    push_text(&mut key, name);
    key
}

/// What follows all postings of a partition.
pub(crate) fn postings_end(partition_number: i64) -> Vec<u8> {
    let mut key = partition(partition_number);
    key.push(b'i' + 1);
    key
}

/// What follows the postings of one label name.
pub(crate) fn postings_after_name(partition_number: i64, name: &str) -> Vec<u8> {
    let mut key = postings(partition_number);
    push_text_open(&mut key, name);
    key.extend_from_slice(&[0, 2]);
    key
}

/// The prefix of the postings of one label name whose values begin with `value_prefix`.
pub(crate) fn postings_of_value_prefix(
    partition_number: i64,
    name: &str,
    value_prefix: &str,
) -> Vec<u8> {
    let mut key = postings_of_name(partition_number, name);
    push_text_open(&mut key, value_prefix);
    key
}

/// The prefix of the postings of one label pair.
pub(crate) fn postings_of_pair(partition_number: i64, name: &str, value: &str) -> Vec<u8> {
    let mut key = postings_of_name(partition_number, name);
    push_text(&mut key, value);
    key
}

/// The postings of one label pair among the series registered from `base_id` on.
pub(crate) fn postings_entry(
    partition_number: i64,
    name: &str,
    value: &str,
    base_id: u32,
) -> Vec<u8> {
    let mut key = postings_of_pair(partition_number, name, value);
    key.extend_from_slice(&base_id.to_be_bytes());
    key
}

/// Name and value of a postings key.
pub(crate) fn parse_postings(key: &[u8]) -> Option<(String, String)> {
    let mut rest = key.get(10..)?;
    let name = take_text(&mut rest)?;
    let value = take_text(&mut rest)?;
    (rest.len() == 4).then_some((name, value))
}

/// The prefix of the dictionary of all partitions.
pub(crate) const DICTIONARY_PREFIX: &[u8] = b"d";

/// The prefix of the partitions that hold a label pair.
pub(crate) fn dictionary_of_pair(name: &str, value: &str) -> Vec<u8> {
    let mut key = DICTIONARY_PREFIX.to_vec();
    push_text(&mut key, name);
    push_text(&mut key, value);
    key
}

/// The prefix of the pairs of a label whose values begin so.
pub(crate) fn dictionary_of_value_prefix(name: &str, value_prefix: &str) -> Vec<u8> {
    let mut key = DICTIONARY_PREFIX.to_vec();
    push_text(&mut key, name);
    push_text_open(&mut key, value_prefix);
    key
}

/// The value and the partition of an entry for a label.
pub(crate) fn parse_dictionary(key: &[u8], name: &str) -> Option<(String, i64)> {
    let of_name = dictionary_of_value_prefix(name, "");
    let mut rest = key.strip_prefix(&of_name[..])?;
    let value = take_text(&mut rest)?;
    Some((value, parse_ordered(rest, b"")?))
}

/// Name, value and partition of an entry.
pub(crate) fn parse_dictionary_pair(key: &[u8]) -> Option<(String, String, i64)> {
    let mut rest = key.strip_prefix(DICTIONARY_PREFIX)?;
    let (name, value) = (take_text(&mut rest)?, take_text(&mut rest)?);
    Some((name, value, parse_ordered(rest, b"")?))
}

/// That a partition holds a label pair.
pub(crate) fn dictionary_entry(name: &str, value: &str, partition: i64) -> Vec<u8> {
    let mut key = dictionary_of_pair(name, value);
    push_ordered(&mut key, partition);
    key
}

/// The prefix of what is known of metrics.
pub(crate) const METADATA_PREFIX: &[u8] = b"n";

/// What is known of a metric.
pub(crate) fn metadata(metric: &str) -> Vec<u8> {
    let mut key = METADATA_PREFIX.to_vec();
    push_text(&mut key, metric);
    key
}

/// The metric of a metadata key.
pub(crate) fn parse_metadata(key: &[u8]) -> Option<String> {
    let mut rest = key.strip_prefix(METADATA_PREFIX)?;
    let metric = take_text(&mut rest)?;
    rest.is_empty().then_some(metric)
}

/// The prefix of the exemplars.
pub(crate) const EXEMPLARS_PREFIX: &[u8] = b"x";

/// The exemplars of one commit, by the number of the first.
pub(crate) fn exemplars(first: u64) -> Vec<u8> {
    let mut key = EXEMPLARS_PREFIX.to_vec();
    key.extend_from_slice(&first.to_be_bytes());
    key
}

/// The number of the first exemplar under a key.
pub(crate) fn parse_exemplars(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.strip_prefix(EXEMPLARS_PREFIX)?.try_into().ok()?))
}

/// A key as people can read it, for error messages: printable ASCII as it is, the rest in hex.
pub(crate) fn printable(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    for byte in key {
        if byte.is_ascii_graphic() && *byte != b'\\' {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn postings_keys_keep_their_texts_and_their_order(
            a in ("[\0a\u{1}\u{ff}]{0,3}", "[\0a\u{1}\u{ff}]{0,3}"),
            b in ("[\0a\u{1}\u{ff}]{0,3}", "[\0a\u{1}\u{ff}]{0,3}"),
        ) {
            let key_a = postings_entry(-3, &a.0, &a.1, 7);
            let key_b = postings_entry(-3, &b.0, &b.1, 7);
            prop_assert_eq!(parse_postings(&key_a), Some(a.clone()));
            prop_assert_eq!(key_a.cmp(&key_b), a.cmp(&b));
            let starts = key_b.starts_with(&postings_of_value_prefix(-3, &a.0, &a.1));
            prop_assert_eq!(starts, a.0 == b.0 && b.1.starts_with(&a.1));
            let after = postings_after_name(-3, &a.0);
            prop_assert_eq!(key_b.cmp(&after).is_gt(), b.0 > a.0);
            prop_assert!(after < postings_end(-3));
            prop_assert_eq!(parse_note(&note(&a.0)), Some(a.0.clone()));
            let entry = dictionary_entry(&a.0, &a.1, -3);
            prop_assert_eq!(parse_dictionary_pair(&entry), Some((a.0.clone(), a.1, -3)));
            prop_assert_eq!(parse_metadata(&metadata(&a.0)), Some(a.0));
        }

        #[test]
        fn any_bytes_are_a_key_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (parse_postings(&bytes), parse_log(&bytes), parse_directory(&bytes));
            let _ = (parse_forward_page(&bytes), parse_ordered(&bytes, b"mp"));
            let _ = (parse_note(&bytes), parse_dictionary_pair(&bytes));
            let _ = (parse_metadata(&bytes), parse_exemplars(&bytes), parse_tombstone(&bytes));
        }
    }

    #[test]
    fn numbers_before_the_epoch_sort_first() {
        assert!(partition(-1) < partition(0));
        assert_eq!(parse_ordered(&watermark(-5), WATERMARKS_PREFIX), Some(-5));
        assert_eq!(parse_log(&log(3, 9)), Some((3, 9)));
        assert_eq!(parse_log_epoch(&log_epoch(3)), Some(3));
        assert_eq!(segment_len(&log(3, 9)), Some(log_epoch(3).len()));
        assert_eq!(segment_len(&block(7, -1, 2, 3)), Some(partition(-1).len()));
        assert_eq!(parse_directory(&directory(7, -1, 2)), Some((7, 11, 2)));
        assert_eq!(parse_exemplars(&exemplars(9)), Some(9));
        assert_eq!(parse_tombstone(&tombstone(9)), Some(9));
        assert_eq!(directory_of_block(&block(7, -1, 2, 3)), Some(directory(7, -1, 2)));
    }

    #[test]
    fn the_hash_of_a_name_is_part_of_the_format() {
        assert_eq!(metric_hash(""), 0x8570e250fe4c2473);
        assert_eq!(metric_hash("up"), metric_hash("up"));
    }
}

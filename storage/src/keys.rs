//! Keys of the store: builders and parsers.
//!
//! Layout: "Keys" in `docs/formats.md`. Each partition is a segment, and so is each log epoch,
//! because they are deleted whole; all other keys form one segment per letter.

use crate::epoch::Epoch;
use crate::window::{PartitionId, Window};

/// Maximum length of a label name in bytes, far below the limit of a key.
pub(crate) const NAME_BYTES_MAX: usize = 1 << 10;
/// Maximum length of a label value in bytes, which fits a key even if each byte is escaped.
pub(crate) const VALUE_BYTES_MAX: usize = 16 << 10;

/// Returns the length of a key's segment, for whole keys and for prefixes of them.
pub(crate) fn segment_len(key: &[u8]) -> Option<usize> {
    let len = match key.first()? {
        b'p' => 9,
        b'l' => 5,
        _ => 1,
    };
    (key.len() >= len).then_some(len)
}

/// Returns whether a segment belongs to no day and no log epoch.
pub(crate) fn is_of_all_days(segment: &[u8]) -> bool {
    segment.len() == 1
}

/// Position of the letter after a partition.
const KIND_AT: usize = 9;

fn push_ordered(key: &mut Vec<u8>, number: i64) {
    key.extend_from_slice(&(number as u64 ^ 1 << 63).to_be_bytes());
}

fn parse_epoch(bytes: &[u8]) -> Option<Epoch> {
    Some(Epoch::new(u32::from_be_bytes(bytes.try_into().ok()?)))
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

/// Prefix of all log records.
const LOG_PREFIX: &[u8] = b"l";
/// First key after all log records.
pub(crate) const LOG_END: &[u8] = b"m";

/// Returns the key of a log record.
pub(crate) fn log(epoch: Epoch, sequence: u64) -> Vec<u8> {
    let mut key = log_epoch(epoch);
    key.extend_from_slice(&sequence.to_be_bytes());
    key
}

/// Returns the prefix of the log records of one epoch.
pub(crate) fn log_epoch(epoch: Epoch) -> Vec<u8> {
    let mut key = LOG_PREFIX.to_vec();
    key.extend_from_slice(&epoch.number().to_be_bytes());
    key
}

/// Returns the epoch of a log segment.
pub(crate) fn parse_log_epoch(segment: &[u8]) -> Option<Epoch> {
    parse_epoch(segment.strip_prefix(LOG_PREFIX)?)
}

/// Returns epoch and sequence of a log record's key.
pub(crate) fn parse_log(key: &[u8]) -> Option<(Epoch, u64)> {
    let rest = key.strip_prefix(LOG_PREFIX)?;
    let (epoch, rest) = rest.split_first_chunk::<4>()?;
    let sequence: [u8; 8] = rest.try_into().ok()?;
    Some((parse_epoch(epoch)?, u64::from_be_bytes(sequence)))
}

/// Format of the store; absent in the first one.
pub(crate) const FORMAT: &[u8] = b"mv";
/// Prefix of the notes of tools.
pub(crate) const NOTES_PREFIX: &[u8] = b"mf";

/// Returns the key of a tool's note.
pub(crate) fn note(name: &str) -> Vec<u8> {
    let mut key = NOTES_PREFIX.to_vec();
    push_text(&mut key, name);
    key
}

/// Returns the name of a note.
pub(crate) fn parse_note(key: &[u8]) -> Option<String> {
    let mut rest = key.strip_prefix(NOTES_PREFIX)?;
    let name = take_text(&mut rest)?;
    rest.is_empty().then_some(name)
}

/// Process that writes to the store; absent once it has been closed.
pub(crate) const OWNER: &[u8] = b"mo";
/// Next log epoch, and the first one whose records count.
pub(crate) const EPOCH: &[u8] = b"me";
/// Number of records in each log epoch replayed at the last start.
pub(crate) const RECORDS: &[u8] = b"mc";
/// Key that is never present: a write that changes nothing deletes it.
pub(crate) const NOTHING: &[u8] = b"m-";
/// First partition that is kept, while those before it are being deleted or the log has records of
/// them.
pub(crate) const KEPT_FROM: &[u8] = b"mb";
/// Prefix of the partition entries.
pub(crate) const PARTITIONS_PREFIX: &[u8] = b"mp";
/// Prefix of the watermarks of windows.
pub(crate) const WATERMARKS_PREFIX: &[u8] = b"mw";
/// Prefix of the intents.
pub(crate) const INTENTS_PREFIX: &[u8] = b"mi";

/// First partition whose samples are not replaced by summaries; absent if there is none before it.
pub(crate) const SUMMARIZED: &[u8] = b"ma";
/// First partition that is kept by the size limit; absent without one.
pub(crate) const KEPT_BY_SIZE: &[u8] = b"ms";
/// Progress of the retention rules; absent without rules.
pub(crate) const RULES: &[u8] = b"mr";

/// Prefix of the tombstones.
pub(crate) const TOMBSTONES_PREFIX: &[u8] = b"mt";
/// Prefix of the deleted ids.
pub(crate) const DELETED_IDS_PREFIX: &[u8] = b"mg";

/// Returns the key of a log epoch's tombstone.
pub(crate) fn tombstone(epoch: Epoch) -> Vec<u8> {
    let mut key = TOMBSTONES_PREFIX.to_vec();
    key.extend_from_slice(&epoch.number().to_be_bytes());
    key
}

/// Returns the epoch of a tombstone's key.
pub(crate) fn parse_tombstone(key: &[u8]) -> Option<Epoch> {
    parse_epoch(key.strip_prefix(TOMBSTONES_PREFIX)?)
}

/// Returns the key of a partition's deleted ids.
pub(crate) fn deleted_ids(partition: PartitionId) -> Vec<u8> {
    let mut key = DELETED_IDS_PREFIX.to_vec();
    push_ordered(&mut key, partition.number());
    key
}

/// Returns the key of a partition's entry.
pub(crate) fn partition_entry(partition: PartitionId) -> Vec<u8> {
    let mut key = PARTITIONS_PREFIX.to_vec();
    push_ordered(&mut key, partition.number());
    key
}

/// Returns the key of a window's watermark.
pub(crate) fn watermark(window: Window) -> Vec<u8> {
    let mut key = WATERMARKS_PREFIX.to_vec();
    push_ordered(&mut key, window.number());
    key
}

/// Returns the partition or window of a key that is the given prefix and a number.
pub(crate) fn parse_ordered(key: &[u8], prefix: &[u8]) -> Option<i64> {
    let number: [u8; 8] = key.strip_prefix(prefix)?.try_into().ok()?;
    Some((u64::from_be_bytes(number) ^ 1 << 63) as i64)
}

/// Returns the key of the intent for a batch of blocks.
pub(crate) fn intent(epoch: Epoch, number: u32) -> Vec<u8> {
    let mut key = INTENTS_PREFIX.to_vec();
    key.extend_from_slice(&epoch.number().to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// Returns the prefix of everything in a partition.
pub(crate) fn partition(partition: PartitionId) -> Vec<u8> {
    let mut key = b"p".to_vec();
    push_ordered(&mut key, partition.number());
    key
}

/// Returns the number of the partition that a segment holds.
pub(crate) fn parse_partition(segment: &[u8]) -> Option<PartitionId> {
    parse_ordered(segment, b"p").map(PartitionId::new)
}

/// Returns a stable hash of a metric's name: FNV-1a with a final mix.
pub(crate) fn metric_hash(name: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ hash >> 29
}

/// Returns the prefix of a metric's blocks in a partition.
pub(crate) fn blocks_of_metric(partition_id: PartitionId, metric: u64) -> Vec<u8> {
    let mut key = partition(partition_id);
    key.push(b'b');
    key.extend_from_slice(&metric.to_be_bytes());
    key
}

/// Returns the key of a series block.
pub(crate) fn block(metric: u64, window: Window, epoch: Epoch, first_id: u32) -> Vec<u8> {
    let mut key = blocks_of_metric(window.partition(), metric);
    key.push(window.in_partition());
    key.extend_from_slice(&epoch.number().to_be_bytes());
    key.extend_from_slice(&first_id.to_be_bytes());
    key
}

/// Returns the key of the summaries of the block with these series.
pub(crate) fn summaries(metric: u64, window: Window, epoch: Epoch, first_id: u32) -> Vec<u8> {
    summaries_of_block(&block(metric, window, epoch, first_id))
}

/// Returns the key of the summaries of a block.
pub(crate) fn summaries_of_block(block: &[u8]) -> Vec<u8> {
    let mut key = block.to_vec();
    if let Some(kind) = key.get_mut(KIND_AT) {
        *kind = b'a';
    }
    key
}

/// Returns the key of the block that summaries belong to.
pub(crate) fn block_of_summaries(key: &[u8]) -> Option<Vec<u8>> {
    let mut block = key.to_vec();
    let kind = block.get_mut(KIND_AT).filter(|kind| **kind == b'a')?;
    *kind = b'b';
    directory_of_block(&block).is_some_and(|d| parse_directory(&d).is_some()).then_some(block)
}

/// Returns the window of a block's summaries.
pub(crate) fn window_of_summaries(key: &[u8]) -> Option<Window> {
    let directory = directory_of_block(&block_of_summaries(key)?)?;
    let partition = partition_of_directory(&directory)?;
    let (_, window, _) = parse_directory(&directory)?;
    Some(partition.window(window))
}

/// Returns the prefix of the summaries of a partition.
pub(crate) fn summaries_of_day(partition_id: PartitionId) -> Vec<u8> {
    let mut key = partition(partition_id);
    key.push(b'a');
    key
}

/// Returns the prefix of all run directories of a partition.
pub(crate) fn directories(partition_id: PartitionId) -> Vec<u8> {
    let mut key = partition(partition_id);
    key.push(b'c');
    key
}

/// Returns the prefix of the blocks of a partition.
pub(crate) fn blocks(partition_id: PartitionId) -> Vec<u8> {
    let mut key = partition(partition_id);
    key.push(b'b');
    key
}

/// Returns the prefix of a metric's run directories.
pub(crate) fn directories_of_metric(partition_id: PartitionId, metric: u64) -> Vec<u8> {
    let mut key = directories(partition_id);
    key.extend_from_slice(&metric.to_be_bytes());
    key
}

/// Returns the key of a run directory.
pub(crate) fn directory(metric: u64, window: Window, epoch: Epoch) -> Vec<u8> {
    let mut key = directories_of_metric(window.partition(), metric);
    key.push(window.in_partition());
    key.extend_from_slice(&epoch.number().to_be_bytes());
    key
}

/// Returns the key of the run directory that lists a block, given its key or that of its summaries.
pub(crate) fn directory_of_block(block: &[u8]) -> Option<Vec<u8>> {
    let mut key = block.get(..block.len().checked_sub(4)?)?.to_vec();
    let kind = key.get_mut(KIND_AT).filter(|kind| matches!(**kind, b'b' | b'a'))?;
    *kind = b'c';
    Some(key)
}

/// Returns the partition of a run directory; `None` for any other key.
pub(crate) fn partition_of_directory(key: &[u8]) -> Option<PartitionId> {
    let (partition, rest) = key.split_at_checked(9)?;
    rest.starts_with(b"c").then(|| parse_partition(partition))?
}

/// Returns whether a key belongs to the records of the store about itself.
pub(crate) fn is_meta(key: &[u8]) -> bool {
    key.starts_with(b"m")
}

/// Returns metric, window of the day and epoch of a run directory's key.
pub(crate) fn parse_directory(key: &[u8]) -> Option<(u64, u8, Epoch)> {
    let rest = key.get(10..)?;
    let (metric, rest) = rest.split_first_chunk::<8>()?;
    let (window, rest) = rest.split_first()?;
    Some((u64::from_be_bytes(*metric), *window, parse_epoch(rest)?))
}

/// Returns the prefix of the forward index of a partition.
pub(crate) fn forward(partition_id: PartitionId) -> Vec<u8> {
    let mut key = partition(partition_id);
    key.push(b'f');
    key
}

/// Returns the key of a page of the forward index.
pub(crate) fn forward_page(partition_id: PartitionId, page: u32) -> Vec<u8> {
    let mut key = forward(partition_id);
    key.extend_from_slice(&page.to_be_bytes());
    key
}

/// Returns the page of a forward index key.
pub(crate) fn parse_forward_page(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(key.get(10..)?.try_into().ok()?))
}

/// Returns the prefix of all postings of a partition.
pub(crate) fn postings(partition_id: PartitionId) -> Vec<u8> {
    let mut key = partition(partition_id);
    key.push(b'i');
    key
}

/// Returns the prefix of the postings of one label name.
pub(crate) fn postings_of_name(partition_id: PartitionId, name: &str) -> Vec<u8> {
    let mut key = postings(partition_id);
    push_text(&mut key, name);
    key
}

/// Returns the first key after all postings of a partition.
pub(crate) fn postings_end(partition_id: PartitionId) -> Vec<u8> {
    let mut key = partition(partition_id);
    key.push(b'i' + 1);
    key
}

/// Returns the first key after the postings of one label name.
pub(crate) fn postings_after_name(partition_id: PartitionId, name: &str) -> Vec<u8> {
    let mut key = postings(partition_id);
    push_text_open(&mut key, name);
    key.extend_from_slice(&[0, 2]);
    key
}

/// Returns the prefix of the postings of one label name whose values begin with `value_prefix`.
pub(crate) fn postings_of_value_prefix(
    partition_id: PartitionId,
    name: &str,
    value_prefix: &str,
) -> Vec<u8> {
    let mut key = postings_of_name(partition_id, name);
    push_text_open(&mut key, value_prefix);
    key
}

/// Returns the prefix of the postings of one label pair.
pub(crate) fn postings_of_pair(partition_id: PartitionId, name: &str, value: &str) -> Vec<u8> {
    let mut key = postings_of_name(partition_id, name);
    push_text(&mut key, value);
    key
}

/// Returns the key of a pair's postings among the series registered from `base_id` on.
pub(crate) fn postings_entry(
    partition_id: PartitionId,
    name: &str,
    value: &str,
    base_id: u32,
) -> Vec<u8> {
    let mut key = postings_of_pair(partition_id, name, value);
    key.extend_from_slice(&base_id.to_be_bytes());
    key
}

/// Returns name and value of a postings key.
pub(crate) fn parse_postings(key: &[u8]) -> Option<(String, String)> {
    let mut rest = key.get(10..)?;
    let name = take_text(&mut rest)?;
    let value = take_text(&mut rest)?;
    (rest.len() == 4).then_some((name, value))
}

/// Prefix of the dictionary of all partitions.
pub(crate) const DICTIONARY_PREFIX: &[u8] = b"d";

/// Returns the prefix of the partitions that hold a label pair.
pub(crate) fn dictionary_of_pair(name: &str, value: &str) -> Vec<u8> {
    let mut key = DICTIONARY_PREFIX.to_vec();
    push_text(&mut key, name);
    push_text(&mut key, value);
    key
}

/// Returns the prefix of a label's pairs whose values begin with `value_prefix`.
pub(crate) fn dictionary_of_value_prefix(name: &str, value_prefix: &str) -> Vec<u8> {
    let mut key = DICTIONARY_PREFIX.to_vec();
    push_text(&mut key, name);
    push_text_open(&mut key, value_prefix);
    key
}

/// Returns value and partition of a label's dictionary key.
pub(crate) fn parse_dictionary(key: &[u8], name: &str) -> Option<(String, PartitionId)> {
    let of_name = dictionary_of_value_prefix(name, "");
    let mut rest = key.strip_prefix(&of_name[..])?;
    let value = take_text(&mut rest)?;
    Some((value, PartitionId::new(parse_ordered(rest, b"")?)))
}

/// Returns name, value and partition of a dictionary key.
pub(crate) fn parse_dictionary_pair(key: &[u8]) -> Option<(String, String, PartitionId)> {
    let mut rest = key.strip_prefix(DICTIONARY_PREFIX)?;
    let (name, value) = (take_text(&mut rest)?, take_text(&mut rest)?);
    Some((name, value, PartitionId::new(parse_ordered(rest, b"")?)))
}

/// Returns the dictionary key for a label pair in a partition.
pub(crate) fn dictionary_entry(name: &str, value: &str, partition: PartitionId) -> Vec<u8> {
    let mut key = dictionary_of_pair(name, value);
    push_ordered(&mut key, partition.number());
    key
}

/// Prefix of the metadata.
pub(crate) const METADATA_PREFIX: &[u8] = b"n";

/// Returns the key of a metric's metadata.
pub(crate) fn metadata(metric: &str) -> Vec<u8> {
    let mut key = METADATA_PREFIX.to_vec();
    push_text(&mut key, metric);
    key
}

/// Returns the metric of a metadata key.
pub(crate) fn parse_metadata(key: &[u8]) -> Option<String> {
    let mut rest = key.strip_prefix(METADATA_PREFIX)?;
    let metric = take_text(&mut rest)?;
    rest.is_empty().then_some(metric)
}

/// Prefix of the exemplars.
pub(crate) const EXEMPLARS_PREFIX: &[u8] = b"x";

/// Returns the key of one commit's exemplars, by the number of the first.
pub(crate) fn exemplars(first: u64) -> Vec<u8> {
    let mut key = EXEMPLARS_PREFIX.to_vec();
    key.extend_from_slice(&first.to_be_bytes());
    key
}

/// Returns the number of the first exemplar under a key.
pub(crate) fn parse_exemplars(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.strip_prefix(EXEMPLARS_PREFIX)?.try_into().ok()?))
}

/// Returns a key for error messages: printable ASCII unchanged, the rest in hex.
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
            let day = PartitionId::new(-3);
            let key_a = postings_entry(day, &a.0, &a.1, 7);
            let key_b = postings_entry(day, &b.0, &b.1, 7);
            prop_assert_eq!(parse_postings(&key_a), Some(a.clone()));
            prop_assert_eq!(key_a.cmp(&key_b), a.cmp(&b));
            let starts = key_b.starts_with(&postings_of_value_prefix(day, &a.0, &a.1));
            prop_assert_eq!(starts, a.0 == b.0 && b.1.starts_with(&a.1));
            let after = postings_after_name(day, &a.0);
            prop_assert_eq!(key_b.cmp(&after).is_gt(), b.0 > a.0);
            prop_assert!(after < postings_end(day));
            prop_assert_eq!(parse_note(&note(&a.0)), Some(a.0.clone()));
            let entry = dictionary_entry(&a.0, &a.1, day);
            prop_assert_eq!(parse_dictionary_pair(&entry), Some((a.0.clone(), a.1, day)));
            prop_assert_eq!(parse_metadata(&metadata(&a.0)), Some(a.0));
        }

        #[test]
        fn any_bytes_are_a_key_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (parse_postings(&bytes), parse_log(&bytes), parse_directory(&bytes));
            let _ = (parse_forward_page(&bytes), parse_ordered(&bytes, b"mp"));
            let _ = (parse_note(&bytes), parse_dictionary_pair(&bytes));
            let _ = (block_of_summaries(&bytes), directory_of_block(&bytes));
            let _ = (parse_metadata(&bytes), parse_exemplars(&bytes), parse_tombstone(&bytes));
        }
    }

    #[test]
    fn numbers_before_the_epoch_sort_first() {
        let window = Window::new(-1);
        assert!(partition(window.partition()) < partition(PartitionId::new(0)));
        assert_eq!(parse_ordered(&watermark(Window::new(-5)), WATERMARKS_PREFIX), Some(-5));
        let epoch = Epoch::new(3);
        assert_eq!(parse_log(&log(epoch, 9)), Some((epoch, 9)));
        assert_eq!(parse_log_epoch(&log_epoch(epoch)), Some(epoch));
        assert_eq!(segment_len(&log(epoch, 9)), Some(log_epoch(epoch).len()));
        let day = partition(window.partition());
        assert_eq!(segment_len(&block(7, window, epoch, 3)), Some(day.len()));
        assert_eq!(parse_directory(&directory(7, window, epoch)), Some((7, 11, epoch)));
        assert_eq!(parse_exemplars(&exemplars(9)), Some(9));
        assert_eq!(parse_tombstone(&tombstone(epoch)), Some(epoch));
        let block = block(7, window, epoch, 3);
        assert_eq!(directory_of_block(&block), Some(directory(7, window, epoch)));
        let summaries = summaries_of_block(&block);
        assert_eq!(directory_of_block(&summaries), Some(directory(7, window, epoch)));
        assert_eq!(block_of_summaries(&summaries), Some(block.clone()));
        assert_eq!(block_of_summaries(&block), None);
        assert_eq!(window_of_summaries(&summaries), Some(window));
    }

    #[test]
    fn the_hash_of_a_name_is_part_of_the_format() {
        assert_eq!(metric_hash(""), 0x8570e250fe4c2473);
        assert_eq!(metric_hash("up"), metric_hash("up"));
    }
}

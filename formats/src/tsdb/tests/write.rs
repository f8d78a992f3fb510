//! Writes whole blocks.

use std::collections::BTreeSet;
use std::path::Path;

use crate::chunk::EncodedChunk;

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A series of a block.
pub(super) struct WrittenSeries {
    pub(super) labels: Vec<(String, String)>,
    pub(super) chunks: Vec<EncodedChunk>,
}

fn push_section(out: &mut Vec<u8>, body: &[u8]) {
    out.extend_from_slice(&(body.len() as u32).to_be_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(&crc32c::crc32c(body).to_be_bytes());
}

fn push_signed(out: &mut Vec<u8>, value: i64) {
    out.extend(varint((value << 1 ^ value >> 63) as u64));
}

/// Writes a block, with deleted time ranges by series reference; returns the references.
pub(super) fn write_block(
    folder: &Path,
    series: &[WrittenSeries],
    deleted: &[(u64, i64, i64)],
) -> Vec<u64> {
    std::fs::create_dir_all(folder.join("chunks")).unwrap();
    let meta = format!(
        "{{\"ulid\":\"01BX5ZZKBKACTAV9WEVGEMMVRZ\",\"minTime\":0,\"maxTime\":1000,\
         \"stats\":{{\"numSeries\":{}}},\"compaction\":{{\"level\":1}},\"version\":1}}",
        series.len()
    );
    std::fs::write(folder.join("meta.json"), meta).unwrap();
    let mut chunks = vec![0x85, 0xbd, 0x40, 0xdd, 1, 0, 0, 0];
    let texts: BTreeSet<&str> = series
        .iter()
        .flat_map(|series| &series.labels)
        .flat_map(|(name, value)| [name.as_str(), value.as_str()])
        .collect();
    let texts: Vec<&str> = texts.into_iter().collect();
    let mut index = vec![0xba, 0xaa, 0xd7, 0x00, 2];
    let symbols_at = index.len() as u64;
    let mut symbols = (texts.len() as u32).to_be_bytes().to_vec();
    for text in &texts {
        symbols.extend(varint(text.len() as u64));
        symbols.extend_from_slice(text.as_bytes());
    }
    push_section(&mut index, &symbols);
    let series_at = index.len() as u64;
    let mut references = Vec::new();
    for series in series {
        index.resize(index.len().next_multiple_of(16), 0);
        references.push(index.len() as u64 / 16);
        let mut body = varint(series.labels.len() as u64);
        for text in series.labels.iter().flat_map(|(name, value)| [name, value]) {
            body.extend(varint(texts.binary_search(&text.as_str()).unwrap() as u64));
        }
        body.extend(varint(series.chunks.len() as u64));
        let mut before: Option<(i64, u64)> = None;
        for EncodedChunk { min_ms, max_ms, encoding, data } in &series.chunks {
            let place = chunks.len() as u64;
            chunks.extend(varint(data.len() as u64));
            let mut rest = vec![*encoding as u8];
            rest.extend_from_slice(data);
            chunks.extend_from_slice(&rest);
            chunks.extend_from_slice(&crc32c::crc32c(&rest).to_be_bytes());
            match before {
                None => push_signed(&mut body, *min_ms),
                Some((before_ms, _)) => body.extend(varint((min_ms - before_ms) as u64)),
            }
            body.extend(varint((max_ms - min_ms) as u64));
            match before {
                None => body.extend(varint(place)),
                Some((_, before)) => push_signed(&mut body, (place - before) as i64),
            }
            before = Some((*max_ms, place));
        }
        index.extend(varint(body.len() as u64));
        index.extend_from_slice(&body);
        index.extend_from_slice(&crc32c::crc32c(&body).to_be_bytes());
    }
    index.resize(index.len().next_multiple_of(4), 0);
    let postings_at = index.len() as u64;
    let mut postings = (references.len() as u32).to_be_bytes().to_vec();
    for reference in &references {
        postings.extend_from_slice(&(*reference as u32).to_be_bytes());
    }
    push_section(&mut index, &postings);
    let table_at = index.len() as u64;
    let mut table = 1_u32.to_be_bytes().to_vec();
    table.extend([2, 0, 0]);
    table.extend(varint(postings_at));
    push_section(&mut index, &table);
    let contents = [symbols_at, series_at, postings_at, postings_at, table_at, table_at];
    let contents: Vec<u8> = contents.iter().flat_map(|at| at.to_be_bytes()).collect();
    index.extend_from_slice(&contents);
    index.extend_from_slice(&crc32c::crc32c(&contents).to_be_bytes());
    std::fs::write(folder.join("index"), index).unwrap();
    std::fs::write(folder.join("chunks/000001"), chunks).unwrap();
    let mut stones = Vec::new();
    for (reference, from, to) in deleted {
        stones.extend(varint(*reference));
        push_signed(&mut stones, *from);
        push_signed(&mut stones, *to);
    }
    let mut file = vec![0x01, 0x30, 0xba, 0x30, 1];
    file.extend_from_slice(&stones);
    file.extend_from_slice(&crc32c::crc32c(&stones).to_be_bytes());
    std::fs::write(folder.join("tombstones"), file).unwrap();
    references
}

mod write;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use model::Labels;
use proptest::prelude::*;

use super::*;
use crate::FormatError;
use crate::chunk::{ChunkEncoder, ChunkSample, SampleRef};
use write::{WrittenSeries, write_block};

/// A folder that is removed with its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tessella-formats-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Samples of a series: times in ms, and values.
type Samples = Vec<(i64, f64)>;

fn read_block(folder: &Path) -> Result<Vec<(Labels, Samples)>, FormatError> {
    let mut block = Block::open(folder)?;
    let mut all = Vec::new();
    for number in 0..block.series_count() {
        let series = block.series(number)?;
        let mut samples = Vec::new();
        for chunk in &series.chunks {
            block.samples(&series, chunk, |sample| {
                match sample {
                    ChunkSample::Float { timestamp_ms, value, .. } => {
                        samples.push((timestamp_ms, value));
                    }
                    other => panic!("{other:?} was not written"),
                }
                Ok::<_, FormatError>(())
            })?;
        }
        all.push((series.labels, samples));
    }
    Ok(all)
}

fn series_of(count: usize) -> Vec<WrittenSeries> {
    let series = |number: usize| {
        let mut encoder = ChunkEncoder::default();
        let mut chunks = Vec::new();
        for at in 0..240 {
            let value = SampleRef::Float((at * at) as f64 + number as f64);
            chunks.extend(encoder.push(1000 * at + number as i64, value));
        }
        chunks.extend(encoder.finish());
        let number = format!("{number:05}");
        WrittenSeries {
            labels: vec![("__name__".to_owned(), "m".to_owned()), ("number".to_owned(), number)],
            chunks,
        }
    };
    (0..count).map(series).collect()
}

#[test]
fn blocks_are_read_without_deleted_samples() {
    let folder = Folder::new();
    let references = write_block(&folder.0, &series_of(100), &[]);
    let all = read_block(&folder.0).unwrap();
    assert_eq!((all.len(), all[99].1.len()), (100, 240));
    assert_eq!(all[7].0.get("number"), "00007");
    assert_eq!(all[7].1[3], (3007, 9.0 + 7.0));
    let deleted = [(references[7], 2_000, 4_000), (references[8], 0, 1 << 40)];
    write_block(&folder.0, &series_of(100), &deleted);
    let left = read_block(&folder.0).unwrap();
    assert_eq!((left[6].1.len(), left[7].1.len(), left[8].1.len()), (240, 238, 0));
}

#[test]
fn labels_of_blocks_are_sorted_and_rejected_only_where_a_name_occurs_twice() {
    let folder = Folder::new();
    let mut series = series_of(1);
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    series[0].labels.insert(0, label("zone", "a"));
    series[0].labels.push(label("empty", ""));
    write_block(&folder.0, &series, &[]);
    let all = read_block(&folder.0).unwrap();
    assert_eq!(all[0].0.to_string(), r#"{__name__="m", number="00000", zone="a"}"#);
    assert_eq!(all[0].1.len(), 240);
    series[0].labels.push(label("zone", "b"));
    write_block(&folder.0, &series, &[]);
    let error = read_block(&folder.0).unwrap_err().to_string();
    let expected = "series {zone=\"a\", __name__=\"m\", number=\"00000\", empty=\"\", zone=\"b\"}: \
                    duplicated label zone";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn external_labels_of_thanos_are_part_of_the_description() {
    let folder = Folder::new();
    write_block(&folder.0, &series_of(1), &[]);
    let labels = || Block::read_meta(&folder.0).unwrap().unwrap().thanos.labels;
    assert!(labels().is_empty());
    let path = folder.0.join("meta.json");
    let meta = std::fs::read_to_string(&path).unwrap();
    let thanos = "\"thanos\":{\"version\":1,\"labels\":{\"cluster\":\"eu\",\"replica\":\"0\"},\
                  \"downsample\":{\"resolution\":0},\"source\":\"sidecar\"}";
    std::fs::write(&path, meta.replace("\"version\":1", &format!("\"version\":1,{thanos}")))
        .unwrap();
    assert_eq!(
        labels().into_iter().collect::<Vec<_>>(),
        [("cluster", "eu"), ("replica", "0")].map(|(n, v)| (n.to_owned(), v.to_owned()))
    );
}

#[test]
fn errors_name_files_of_other_versions() {
    let folder = Folder::new();
    write_block(&folder.0, &series_of(1), &[]);
    for (file, at, detail) in [
        ("index", 4, "index version 9 is not supported"),
        ("index", 0, "is not that of an index"),
        ("chunks/000001", 4, "version 9 are not of chunks"),
        ("tombstones", 4, "version 9 are not of tombstones"),
    ] {
        let path = folder.0.join(file);
        let bytes = std::fs::read(&path).unwrap();
        let mut changed = bytes.clone();
        changed[at] = 9;
        std::fs::write(&path, changed).unwrap();
        let error = read_block(&folder.0).unwrap_err().to_string();
        assert!(error.contains(file) && error.contains(detail), "{error}");
        std::fs::write(&path, bytes).unwrap();
    }
    let meta = std::fs::read_to_string(folder.0.join("meta.json")).unwrap();
    std::fs::write(folder.0.join("meta.json"), meta.replace("\"version\":1", "\"version\":3"))
        .unwrap();
    assert!(read_block(&folder.0).unwrap_err().to_string().contains("a block of version 3"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn one_changed_byte_is_an_error_or_changes_nothing(
        file in 0_usize..3,
        at in any::<prop::sample::Index>(),
        change in 1_u8..=255,
    ) {
        let folder = Folder::new();
        write_block(&folder.0, &series_of(40), &[(0, 5, 6)]);
        let right = read_block(&folder.0).unwrap();
        let path = folder.0.join(["index", "chunks/000001", "tombstones"][file]);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(found) = read_block(&folder.0) {
            prop_assert_eq!(found, right);
        }
    }

    #[test]
    fn truncated_blocks_are_errors(file in 0_usize..3, at in any::<prop::sample::Index>()) {
        let folder = Folder::new();
        write_block(&folder.0, &series_of(10), &[(0, 5, 6)]);
        let path = folder.0.join(["index", "chunks/000001", "tombstones"][file]);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..at.index(bytes.len())]).unwrap();
        prop_assert!(read_block(&folder.0).is_err());
    }
}

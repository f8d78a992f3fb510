mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use model::{Histogram, Labels, ResetHint, Span, stale_nan};
use proptest::prelude::*;

use super::*;
use crate::FormatError;
use write::{Float, WrittenSeries, float_histograms, integer_histograms, write_block, xor, xor2};

/// A folder that goes with its test.
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

/// A sample as it can be compared: time, start, and bits or histogram.
#[derive(Debug, Clone, PartialEq)]
enum Read {
    Float(i64, i64, u64),
    Histogram(i64, i64, Arc<Histogram>),
    Invalid(i64),
}

fn comparable(sample: ChunkSample) -> Read {
    match sample {
        ChunkSample::Float { timestamp_ms, start_ms, value } => {
            Read::Float(timestamp_ms, start_ms, value.to_bits())
        }
        ChunkSample::Histogram(sample) => {
            Read::Histogram(sample.timestamp_ms, sample.start_ms, sample.histogram)
        }
        ChunkSample::Invalid { timestamp_ms, .. } => Read::Invalid(timestamp_ms),
    }
}

fn read_chunk(encoding: u8, bytes: &[u8]) -> Result<Vec<Read>, ChunkError> {
    let mut reader = ChunkReader::new(encoding, bytes)?;
    let mut samples = Vec::new();
    while let Some(sample) = reader.next_sample()? {
        samples.push(comparable(sample));
    }
    Ok(samples)
}

fn read_block(folder: &Path) -> Result<Vec<(Labels, Vec<Read>)>, FormatError> {
    let mut block = Block::open(folder)?;
    let mut all = Vec::new();
    for number in 0..block.series_count() {
        let series = block.series(number)?;
        let mut samples = Vec::new();
        for chunk in &series.chunks {
            block.samples(&series, chunk, |sample| {
                samples.push(comparable(sample));
                Ok::<_, FormatError>(())
            })?;
        }
        all.push((series.labels, samples));
    }
    Ok(all)
}

fn expected(samples: &[Float]) -> Vec<Read> {
    samples.iter().map(|s| Read::Float(s.time_ms, s.start_ms, s.value.to_bits())).collect()
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => (-20_i64..20).prop_map(|value| value as f64),
        1 => any::<f64>(),
        1 => Just(stale_nan()),
    ]
}

/// Ascending times, mostly even ones.
fn any_times(count: usize) -> impl Strategy<Value = Vec<i64>> {
    let step = prop_oneof![4 => Just(15_000_i64), 2 => 14_900_i64..15_100, 1 => 1_i64..1 << 40];
    (-1_i64 << 40..1 << 40, proptest::collection::vec(step, count)).prop_map(|(first, steps)| {
        let add = |time: &mut i64, step| {
            *time += step;
            Some(*time)
        };
        steps.into_iter().scan(first, add).collect()
    })
}

fn any_floats(has_starts: bool) -> impl Strategy<Value = Vec<Float>> {
    (1_usize..200).prop_flat_map(move |count| {
        let start = prop_oneof![3 => Just(None), 1 => (1_i64..100_000).prop_map(Some)];
        let values = proptest::collection::vec((any_value(), start), count);
        (any_times(count), values).prop_map(move |(times, values)| {
            let mut start_ms = 0;
            let float = |(time_ms, (value, start)): (i64, (f64, Option<i64>))| {
                if let Some(before) = start.filter(|_| has_starts) {
                    start_ms = time_ms - before;
                }
                Float { time_ms, start_ms, value }
            };
            times.into_iter().zip(values).map(float).collect()
        })
    })
}

/// Histograms of one layout.
fn any_histograms() -> impl Strategy<Value = (bool, Vec<(i64, Histogram)>)> {
    let layout = (
        prop_oneof![Just(-53_i8), -4_i8..=8],
        prop_oneof![Just(0.0), Just(2.0_f64.powi(-128)), Just(0.001)],
        proptest::collection::vec((0_i32..5, 1_u32..4), 0..3),
        proptest::collection::vec((0_i32..5, 1_u32..4), 0..3),
    );
    (layout, any::<bool>(), 1_usize..20).prop_flat_map(|(layout, is_gauge, count)| {
        let (schema, zero_threshold, above, below) = layout;
        let is_custom = schema == -53;
        let spans = |spans: &[(i32, u32)]| -> Vec<Span> {
            spans.iter().map(|&(offset, length)| Span { offset, length }).collect()
        };
        let len = |spans: &[Span]| spans.iter().map(|s| s.length as usize).sum::<usize>();
        let (above, below) = (spans(&above), if is_custom { Vec::new() } else { spans(&below) });
        let numbers = (
            proptest::collection::vec(0_u32..1 << 20, len(&above)),
            proptest::collection::vec(0_u32..1 << 20, len(&below)),
            if is_custom { 0_u32..1 } else { 0..1 << 10 },
            any_value(),
        );
        let bounds: Arc<[f64]> = match is_custom {
            true => (0..40).map(|bound| f64::from(bound) * 0.25 - 1.5).collect(),
            false => Arc::default(),
        };
        (any_times(count), proptest::collection::vec(numbers, count)).prop_map(
            move |(times, numbers)| {
                let histogram =
                    |(positive, negative, zero, sum): (Vec<u32>, Vec<u32>, u32, f64)| {
                        let floats = |counts: Vec<u32>| -> Vec<f64> {
                            counts.into_iter().map(f64::from).collect()
                        };
                        let (positive_counts, negative_counts) =
                            (floats(positive), floats(negative));
                        let counts = positive_counts.iter().chain(&negative_counts);
                        Histogram {
                            reset_hint: if is_gauge {
                                ResetHint::Gauge
                            } else {
                                ResetHint::NotReset
                            },
                            schema,
                            zero_threshold: if is_custom { 0.0 } else { zero_threshold },
                            zero_count: zero.into(),
                            count: counts.sum::<f64>() + f64::from(zero),
                            sum: if sum.is_nan() && !model::is_stale(sum) { 1.0 } else { sum },
                            positive_spans: above.clone(),
                            negative_spans: below.clone(),
                            positive_counts,
                            negative_counts,
                            custom_bounds: Arc::clone(&bounds),
                        }
                    };
                (is_gauge, times.into_iter().zip(numbers.into_iter().map(histogram)).collect())
            },
        )
    })
}

fn expected_histograms(histograms: &[(i64, Histogram)], start_ms: i64) -> Vec<Read> {
    let read = |(index, (time_ms, histogram)): (usize, &(i64, Histogram))| {
        let histogram = match histogram.is_stale() {
            true => Histogram::stale(),
            false if index == 0 && histogram.reset_hint == ResetHint::NotReset => {
                Histogram { reset_hint: ResetHint::Unknown, ..histogram.clone() }
            }
            false => histogram.clone(),
        };
        Read::Histogram(*time_ms, start_ms, Arc::new(histogram))
    };
    histograms.iter().enumerate().map(read).collect()
}

proptest! {
    #[test]
    fn floats_are_read_as_they_were_written(floats in any_floats(false)) {
        prop_assert_eq!(read_chunk(1, &xor(&floats)).unwrap(), expected(&floats));
        prop_assert_eq!(read_chunk(4, &xor2(&floats)).unwrap(), expected(&floats));
    }

    #[test]
    fn starts_are_read_with_their_floats(floats in any_floats(true)) {
        prop_assert_eq!(read_chunk(4, &xor2(&floats)).unwrap(), expected(&floats));
    }

    #[test]
    fn histograms_are_read_as_they_were_written(
        (is_gauge, histograms) in any_histograms(),
        start_ms in prop_oneof![Just(0_i64), 1_i64..1000],
    ) {
        let known = expected_histograms(&histograms, 0);
        let integers = integer_histograms(&histograms, is_gauge, 0);
        prop_assert_eq!(read_chunk(2, &integers).unwrap(), known.clone());
        let floats = float_histograms(&histograms, is_gauge, 0);
        prop_assert_eq!(read_chunk(3, &floats).unwrap(), known);
        let with_starts = expected_histograms(&histograms, start_ms);
        let integers = integer_histograms(&histograms, is_gauge, start_ms);
        if start_ms != 0 {
            prop_assert_eq!(read_chunk(5, &integers).unwrap(), with_starts.clone());
            let floats = float_histograms(&histograms, is_gauge, start_ms);
            prop_assert_eq!(read_chunk(6, &floats).unwrap(), with_starts);
        }
    }

    #[test]
    fn any_bytes_are_a_chunk_or_none(
        encoding in 0_u8..9,
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let _ = read_chunk(encoding, &bytes);
    }

    #[test]
    fn mutated_chunks_are_read_or_refused(
        floats in any_floats(true),
        (is_gauge, histograms) in any_histograms(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        for (encoding, bytes) in [
            (1, xor(&floats)),
            (4, xor2(&floats)),
            (2, integer_histograms(&histograms, is_gauge, 0)),
            (3, float_histograms(&histograms, is_gauge, 0)),
        ] {
            let mut changed = bytes.clone();
            for (at, byte) in &changes {
                let at = at.index(changed.len());
                changed[at] = *byte;
            }
            let _ = read_chunk(encoding, &changed);
            let shorter = &bytes[..cut.index(bytes.len())];
            if shorter.len() + 1 < bytes.len() {
                prop_assert!(read_chunk(encoding, shorter).is_err());
            }
        }
    }
}

fn series_of(count: usize) -> Vec<WrittenSeries> {
    let series = |number: usize| {
        let floats: Vec<Float> = (0..240)
            .map(|at| Float {
                time_ms: 1000 * at + number as i64,
                start_ms: 0,
                value: (at * at) as f64 + number as f64,
            })
            .collect();
        let (early, late) = floats.split_at(120);
        let number = format!("{number:05}");
        WrittenSeries {
            labels: vec![("__name__".to_owned(), "m".to_owned()), ("number".to_owned(), number)],
            chunks: [early, late]
                .map(|part| {
                    let (first, last) = (part[0].time_ms, part[part.len() - 1].time_ms);
                    (first, last, 1, xor(part))
                })
                .to_vec(),
        }
    };
    (0..count).map(series).collect()
}

#[test]
fn blocks_are_read_but_for_what_is_deleted() {
    let folder = Folder::new();
    let references = write_block(&folder.0, &series_of(100), &[]);
    let all = read_block(&folder.0).unwrap();
    assert_eq!((all.len(), all[99].1.len()), (100, 240));
    assert_eq!(all[7].0.get("number"), "00007");
    assert_eq!(all[7].1[3], Read::Float(3007, 0, 16.0_f64.to_bits()));
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
fn blocks_of_other_versions_are_refused_by_name() {
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
    fn one_changed_byte_is_found_or_changes_nothing(
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
    fn a_block_that_is_cut_short_is_refused(file in 0_usize..3, at in any::<prop::sample::Index>()) {
        let folder = Folder::new();
        write_block(&folder.0, &series_of(10), &[(0, 5, 6)]);
        let path = folder.0.join(["index", "chunks/000001", "tombstones"][file]);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..at.index(bytes.len())]).unwrap();
        prop_assert!(read_block(&folder.0).is_err());
    }
}

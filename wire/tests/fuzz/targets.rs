//! Bodies of the fuzz targets: decode a message and check the batch.

use model::{Batch, Labels};
use wire::otlp::{self, Encoding, Promoted, Settings};
use wire::{Decoded, Decoder, Limits, MESSAGE_PADDING, Version};

/// Decodes bytes as an OTLP message with two settings, and checks the batches.
pub fn decode_otlp(encoding: Encoding, bytes: &[u8]) {
    let others = Settings {
        allow_utf8: true,
        add_suffixes: false,
        to_custom_buckets: true,
        promote_scope: true,
        promoted: Promoted::AllBut(["a".to_owned()].into()),
        ..Settings::default()
    };
    for settings in [Settings::default(), others] {
        let limits =
            Limits { decompressed_bytes_max: 1 << 20, samples_max: 10_000, ..Limits::default() };
        let mut granted = bytes.len();
        let mut grant = |more| {
            granted += more;
            Ok(())
        };
        let mut batch = Batch::default();
        if otlp::decode(encoding, bytes, &settings, &limits, &mut grant, &mut batch).is_ok() {
            check_batch(&batch);
            assert!(batch.labels_arena.len() <= granted);
        }
        assert!(granted <= 4 << 20);
    }
}

/// Decodes bytes as a message of remote write, and checks the batch.
pub fn decode_bytes(version: Version, bytes: &[u8]) {
    let (batch, granted) = match decode(version, bytes, MESSAGE_PADDING) {
        Ok((batch, _, granted)) => (batch, granted),
        Err(error) => {
            // The bytes after a message must not matter.
            assert_eq!(decode(version, bytes, 0).err(), Some(error));
            return;
        }
    };
    let (bare, bare_decoded, _) = decode(version, bytes, 0).expect("it has been taken once");
    let (_, decoded, _) = decode(version, bytes, 1).expect("it has been taken once");
    assert_eq!(bare_decoded, decoded);
    assert_eq!(bare.labels_arena, batch.labels_arena);
    assert_eq!(bare.timestamps, batch.timestamps);
    assert_eq!(bare.starts, batch.starts);
    assert_eq!(bare.series, batch.series);
    assert_eq!(bare.metadata, batch.metadata);
    check_batch(&batch);
    let texts = batch.labels_arena.len()
        + batch
            .metadata
            .iter()
            .map(|m| m.metric.len() + m.help.len() + m.unit.len())
            .sum::<usize>();
    assert!(version == Version::V1 || texts <= granted, "{texts} of {granted}");
}

type Answer = Result<(Batch, Decoded, usize), wire::DecodeError>;

fn decode(version: Version, bytes: &[u8], padding: usize) -> Answer {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len() + padding, 0x0a);
    let limits = Limits { decompressed_bytes_max: 1 << 20, ..Limits::default() };
    let mut granted = bytes.len();
    let mut grant = |more| {
        granted += more;
        Ok(())
    };
    let mut batch = Batch::default();
    let decoded = Decoder::default().decode(
        version,
        &padded,
        bytes.len(),
        &limits,
        &mut grant,
        &mut batch,
    )?;
    assert!(granted <= 4 << 20);
    Ok((batch, decoded, granted))
}

fn check_batch(batch: &Batch) {
    assert_eq!(batch.timestamps.len(), batch.values.len());
    assert!(batch.starts.len() <= batch.timestamps.len());
    let (mut labels_end, mut samples_end, mut histograms_end) = (0, 0, 0);
    for (index, series) in batch.series.iter().enumerate() {
        let labels = Labels::from_bytes(batch.labels_bytes(index)).expect("labels are canonical");
        assert!(!labels.metric_name().is_empty());
        assert_eq!(series.labels_start, labels_end);
        assert_eq!(batch.samples(index).start, samples_end);
        assert_eq!(batch.histograms(index).start, histograms_end);
        labels_end = series.labels_end;
        samples_end = batch.samples(index).end;
        histograms_end = batch.histograms(index).end;
    }
    assert_eq!(labels_end as usize, batch.labels_arena.len());
    assert_eq!(samples_end, batch.timestamps.len());
    assert_eq!(histograms_end, batch.histograms.len());
    for sample in &batch.histograms {
        sample.histogram.validate().expect("only what is valid is taken");
    }
    for exemplar in &batch.exemplars {
        assert!((exemplar.series_index as usize) < batch.series.len());
        Labels::from_bytes(exemplar.labels.as_bytes()).expect("labels are canonical");
    }
    assert!(batch.metadata.iter().all(|metadata| !metadata.metric.is_empty()));
}

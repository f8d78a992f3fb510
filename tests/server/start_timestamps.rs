//! Prometheus' script about start timestamps, its data sent by remote write 2.0 to the real
//! binary, its queries answered from the store that this leaves.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use engine::{Engine, EngineOptions};
use model::memory::MemorySource;
use model::{HistogramSample, Labels, Source};
use promqltest::{Script, run_script};
use prost::Message;
use storage::{Store, StoreOptions};
use testkit::prompb::{BucketSpan, Count, ZeroCount, v2};
use testkit::{Server, TemporaryDirectory, request, temporary_directory};

const SCRIPT: &str = "start_timestamps.test";

/// Returns the script; `None`, with a message, if it is absent.
fn script() -> Option<Script> {
    let dir = std::env::var_os("PROMQLTEST_DIR").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/promqltest"),
        PathBuf::from,
    );
    let Ok(text) = std::fs::read_to_string(dir.join(SCRIPT)) else {
        println!("SKIPPED: no {SCRIPT} in {} (set PROMQLTEST_DIR)", dir.display());
        return None;
    };
    Some(Script::parse(&text).unwrap())
}

fn spans(spans: &[model::Span]) -> Vec<BucketSpan> {
    spans.iter().map(|s| BucketSpan { offset: s.offset, length: s.length }).collect()
}

fn histogram(sample: &HistogramSample) -> v2::Histogram {
    let h = &*sample.histogram;
    v2::Histogram {
        count: Some(Count::Float(h.count)),
        sum: h.sum,
        schema: i32::from(h.schema),
        zero_threshold: h.zero_threshold,
        zero_count: Some(ZeroCount::Float(h.zero_count)),
        negative_spans: spans(&h.negative_spans),
        negative_counts: h.negative_counts.clone(),
        positive_spans: spans(&h.positive_spans),
        positive_counts: h.positive_counts.clone(),
        reset_hint: i32::from(h.reset_hint.number()),
        timestamp: sample.timestamp_ms,
        custom_values: h.custom_bounds.to_vec(),
        start_timestamp: sample.start_ms,
        ..v2::Histogram::default()
    }
}

/// All samples as one request.
fn message(samples: &MemorySource) -> v2::Request {
    let mut table = v2::SymbolTable::default();
    let mut references = |labels: &Labels| -> Vec<u32> {
        labels
            .iter()
            .flat_map(|(n, v)| [table.add(n.as_bytes()), table.add(v.as_bytes())])
            .collect()
    };
    let mut timeseries = Vec::new();
    for ((labels, times, values), (_, starts)) in samples.iter().zip(samples.starts()) {
        let sample = |at: usize| v2::Sample {
            value: values[at],
            timestamp: times[at],
            start_timestamp: starts.get(at).copied().unwrap_or(0),
        };
        let samples: Vec<v2::Sample> = (0..times.len()).map(sample).collect();
        if !samples.is_empty() {
            let labels_refs = references(labels);
            timeseries.push(v2::TimeSeries { labels_refs, samples, ..Default::default() });
        }
    }
    for (labels, samples) in samples.histograms().filter(|(_, samples)| !samples.is_empty()) {
        let histograms = samples.iter().map(histogram).collect();
        let labels_refs = references(labels);
        timeseries.push(v2::TimeSeries { labels_refs, histograms, ..Default::default() });
    }
    v2::Request { symbols: table.symbols, timeseries }
}

/// Sends all samples to a new server, and opens what it has stored.
async fn stored(directory: &TemporaryDirectory, samples: &MemorySource) -> Store {
    let server = Server::start(directory.path(), &["--self-metrics=false"]);
    let body = snap::raw::Encoder::new().compress_vec(&message(samples).encode_to_vec()).unwrap();
    let head = format!(
        "POST /api/v1/write HTTP/1.1\r\nHost: {}\r\nContent-Encoding: snappy\r\n\
         Content-Type: application/x-protobuf;proto=io.prometheus.write.v2.Request\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        server.address,
        body.len()
    );
    let (status, text) = request(&server.address, &head, &body);
    assert_eq!(status, 204, "{text}");
    let id = server.child.0.id().to_string();
    assert!(Command::new("kill").arg(id).status().unwrap().success());
    let Server { mut child, .. } = server;
    assert!(child.0.wait().unwrap().success());
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    Store::open(directory.path().to_str().unwrap(), options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn script_about_starts_passes_over_remote_write_2() {
    let Some(script) = script() else { return };
    let engine = Engine::new(EngineOptions { use_start_timestamps: true, ..Default::default() });
    let mut directories = Vec::new();
    let reports = run_script(&script, &engine, async |samples: &MemorySource| {
        let directory = temporary_directory(&format!("start-timestamps-{}", directories.len()));
        let store = stored(&directory, samples).await;
        directories.push(directory);
        Arc::new(store) as Arc<dyn Source>
    });
    let reports = reports.await.unwrap();
    let failures: Vec<String> = reports
        .iter()
        .filter_map(|report| {
            Some(format!("{SCRIPT}:{} {}", report.line, report.varied.as_ref().err()?))
        })
        .collect();
    println!("{SCRIPT}: {} evals", reports.len());
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    assert!(!reports.is_empty());
}

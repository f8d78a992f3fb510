//! `tessella inspect`: contents of a store, as a table or as JSON.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use clap::ValueEnum;
use model::TimeRange;
use serde_json::{Value, json};
use storage::audit::{self, EncodingSurvey, PartitionSurvey, StoreSurvey};

use super::progress::{Unit, bar};
use super::store_args::StoreArgs;
use super::{ToolError, print_report};
use crate::time::format_rfc3339;

/// Flags of `inspect`.
#[derive(Debug, Clone, clap::Args)]
pub struct InspectArgs {
    /// Format of the output: a table, or JSON for programs.
    #[arg(long = "format", value_name = "FORMAT", default_value = "table")]
    pub format: InspectFormat,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// Format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InspectFormat {
    /// Aligned text.
    Table,
    /// JSON for programs.
    Json,
}

/// Reads the store, and prints its contents.
pub(super) async fn run(args: InspectArgs) -> Result<(), ToolError> {
    let options = args.store.options()?;
    let bar = bar(Unit::Bytes, 0, "inspect");
    let mut on_progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let survey = audit::survey(&args.store.storage_url, &options, &mut on_progress).await;
    bar.finish_and_clear();
    let survey = survey?;
    match args.format {
        InspectFormat::Table => print_report(&table(&survey))?,
        InspectFormat::Json => print_report(&format!("{:#}\n", to_json(&survey)))?,
    }
    if survey.damages > 0 {
        eprintln!("{} damages were skipped: tessella verify prints them", survey.damages);
    }
    Ok(())
}

fn to_json(survey: &StoreSurvey) -> Value {
    let times = |times: Option<TimeRange>| json!(times.map(|range| [range.start_ms, range.end_ms]));
    let encoding = |(name, of): (&&str, &EncodingSurvey)| {
        let of = json!({"frames": of.frames, "samples": of.samples, "bytes": of.bytes});
        ((*name).to_owned(), of)
    };
    let partition = |day: &PartitionSurvey| {
        json!({
            "startMs": day.start_ms,
            "timesMs": times(day.times_ms),
            "series": day.series,
            "seriesGone": day.series_gone,
            "samples": day.samples(),
            "encodings": day.encodings.iter().map(encoding).collect::<serde_json::Map<_, _>>(),
            "blocks": day.blocks,
            "blockBytes": day.block_bytes,
            "blocksSummarized": day.blocks_summarized,
            "blocksUnlisted": day.blocks_unlisted,
            "runs": day.runs,
            "runsUnmerged": day.runs_unmerged,
            "files": day.files,
            "fileRuns": day.file_runs,
            "fileBytes": day.file_bytes,
        })
    };
    let tombstones = survey.tombstones.iter().map(|tombstone| {
        json!({
            "epoch": tombstone.epoch,
            "startMs": tombstone.start_ms,
            "endMs": tombstone.end_ms,
            "selectors": tombstone.selectors,
            "isCleaned": tombstone.is_cleaned,
        })
    });
    let log = &survey.log;
    json!({
        "format": survey.format,
        "owner": survey.owner,
        "files": survey.files,
        "fileBytes": survey.file_bytes,
        "partitions": survey.partitions.iter().map(partition).collect::<Vec<_>>(),
        "log": {
            "firstEpoch": log.first_epoch,
            "nextEpoch": log.next_epoch,
            "records": log.records,
            "bytes": log.bytes,
            "series": log.series,
            "samples": log.samples,
            "timesMs": times(log.times_ms),
        },
        "tombstones": tombstones.collect::<Vec<_>>(),
        "exemplarEntries": survey.exemplar_entries,
        "metricsDescribed": survey.metrics_described,
        "notes": survey.notes,
        "damages": survey.damages,
    })
}

fn table(survey: &StoreSurvey) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name:<14}{text}");
    };
    line("format", survey.format.to_string());
    line("owner", survey.owner.clone().unwrap_or_else(|| "none: the store is closed".to_owned()));
    line("files", format!("{} of {} bytes", survey.files, survey.file_bytes));
    let log = &survey.log;
    line(
        "log",
        format!(
            "{} records of {} bytes from epoch {} on; not sealed: {} samples{}",
            log.records,
            log.bytes,
            log.first_epoch,
            log.samples,
            log.times_ms.map(|times| format!(", {}", span(times))).unwrap_or_default()
        ),
    );
    line("exemplars", format!("{} entries", survey.exemplar_entries));
    line("metadata", format!("of {} metrics", survey.metrics_described));
    line("notes", survey.notes.len().to_string());
    line("tombstones", survey.tombstones.len().to_string());
    for tombstone in &survey.tombstones {
        let cleaned = if tombstone.is_cleaned { ", cleaned" } else { "" };
        let times = span(TimeRange::new(tombstone.start_ms, tombstone.end_ms));
        line("", format!("{} {times}{cleaned}", tombstone.selectors.join(" or ")));
    }
    let days = &survey.partitions;
    line("days", days.len().to_string());
    let header = [
        "day",
        "series",
        "samples",
        "block bytes",
        "bytes/sample",
        "blocks",
        "summarized",
        "runs",
        "unmerged",
        "files",
        "file runs",
        "file bytes",
        "encodings",
    ];
    let mut rows = vec![header.map(str::to_owned)];
    rows.extend(days.iter().map(row));
    out.push_str(&aligned(&rows));
    out
}

fn row(day: &PartitionSurvey) -> [String; 13] {
    let samples = day.samples();
    let each = if samples == 0 { 0.0 } else { day.block_bytes as f64 / samples as f64 };
    let share = |(name, of): (&&str, &EncodingSurvey)| {
        format!("{name} {:.0} %", 100.0 * of.samples as f64 / samples.max(1) as f64)
    };
    [
        instant(day.start_ms)[..10].to_owned(),
        (u64::from(day.series) - day.series_gone.min(day.series.into())).to_string(),
        samples.to_string(),
        day.block_bytes.to_string(),
        format!("{each:.2}"),
        day.blocks.to_string(),
        day.blocks_summarized.to_string(),
        day.runs.to_string(),
        day.runs_unmerged.to_string(),
        day.files.to_string(),
        day.file_runs.to_string(),
        day.file_bytes.to_string(),
        day.encodings.iter().map(share).collect::<Vec<_>>().join(", "),
    ]
}

/// Aligns columns to the right, the first and the last one to the left.
pub(super) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut out = String::new();
    for row in rows {
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match at {
                0 => write!(out, "{cell:<width$}"),
                _ if at + 1 == N => write!(out, "  {cell}"),
                _ => write!(out, "  {cell:>width$}"),
            };
        }
        out.push('\n');
    }
    out
}

fn span(times: TimeRange) -> String {
    format!("{} to {}", instant(times.start_ms), instant(times.end_ms))
}

/// Formats a time as RFC 3339, or in ms before the epoch; times beyond the limits of the store as
/// words.
fn instant(time_ms: i64) -> String {
    match u64::try_from(time_ms) {
        Ok(ms) if ms < 1 << 44 => format_rfc3339(UNIX_EPOCH + Duration::from_millis(ms)),
        Ok(_) => "the end".to_owned(),
        Err(_) if time_ms < -(1 << 43) => "the beginning".to_owned(),
        Err(_) => format!("{time_ms:>10} ms"),
    }
}

//! `tessella import`: OpenMetrics text, JSON lines of VictoriaMetrics and blocks of Prometheus into a
//! store.
//!
//! ```text
//! file ─→ samples ─→ batches ─→ log, head ─→ seal ─→ blocks
//!   separate thread        │ two wait    └ progress note
//! ```
//!
//! Notes in the store hold the progress of each file, so that an aborted import continues there.
//! Samples after the last note are written again, which does not change results.

mod batcher;
mod inputs;
mod labels;
mod read;
mod stored;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use model::{Batch, RejectReason};
use storage::{AppendOutcome, Store};
use tokio::sync::mpsc;
use tracing::info;

use super::progress::{Unit, bar};
use super::store_args::StoreArgs;
use super::{ToolError, print_report};
use crate::flags::{parse_positive_bytes, parse_positive_duration};
use crate::units::format_bytes;
use inputs::Input;
use labels::{AddedLabels, LabelArg, parse_label};
use read::{Piece, Progress, Stopped};
use stored::{StoredDays, without_stored};

/// Maximum time, and maximum number of samples, between two progress notes.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);
const NOTE_SAMPLES_MAX: u64 = 256 << 10;
/// Maximum number of batches that wait for the store.
const WAITING_MAX: usize = 2;
/// Maximum number of rejected samples that are named.
const REFUSED_NAMED_MAX: usize = 10;

/// Flags of `import`.
#[derive(Debug, Clone, clap::Args)]
pub struct ImportArgs {
    /// Files of OpenMetrics text with timestamps, of JSON lines from VictoriaMetrics' /api/v1/export,
    /// block folders of Prometheus, and folders that hold blocks, such as the data folder of Prometheus.
    #[arg(value_name = "FILE|DIR", required = true)]
    pub paths: Vec<PathBuf>,

    /// Label that replaces the label of the same name in all series; an empty value removes it. May be
    /// repeated.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub labels: Vec<LabelArg>,

    /// Repeated import of inputs that are imported already, for instance after a deletion.
    #[arg(long = "again")]
    pub again: bool,

    /// Immediate takeover of a store on an object store from its owner, without waiting until the owner
    /// stops or its lease expires (--storage.lease-duration of the owner). The previous owner can no longer write.
    #[arg(long = "take-over")]
    pub take_over: bool,

    /// Maximum memory of the head before it is sealed, as a size; a larger head seals fewer runs per
    /// day.
    #[arg(long = "storage.head-size", value_name = "SIZE", default_value = "512MiB", value_parser = parse_positive_bytes)]
    pub head_bytes_max: u64,

    /// Maximum time until a write is durable, as a duration.
    #[arg(long = "storage.write-timeout", value_name = "DURATION", default_value = "5m", value_parser = parse_positive_duration)]
    pub write_timeout: Duration,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// Counts of imported and omitted samples.
#[derive(Debug, Default)]
struct Totals {
    accepted: usize,
    held: usize,
    refused: u64,
    refused_named: Vec<String>,
    exemplars: usize,
    exemplars_left_out: usize,
    metadata: usize,
}

/// Imports all inputs, up to the first error.
pub(super) async fn run(args: ImportArgs) -> Result<(), ToolError> {
    let labels = AddedLabels::of_args(&args.labels)?;
    let inputs = inputs::find(&args.paths)?;
    // Before the store is opened, so that a wrong file creates none.
    for input in &inputs {
        read::check_start(input)?;
    }
    let mut options = args.store.options()?;
    options.write_timeout = args.write_timeout;
    options.ahead_max_ms = None;
    options.columns_bytes_max = 0;
    // The import seals the head itself, so limits of the server do not apply.
    (options.active_series_max, options.active_series_per_metric_max) = (0, 0);
    options.head_bytes_max = 0;
    options.owner = format!("import, process {}", std::process::id());
    options.take_over = args.take_over;
    let store = Store::open(&args.store.storage_url, options).await?;
    // With an empty head, all samples of the store are in its days.
    let mut outcome = match store.stats().head_series {
        0 => Ok(()),
        _ => store.seal_and_forget().await.map_err(ToolError::from),
    };
    let mut import = Import::new(&store, args.head_bytes_max, labels);
    for input in &inputs {
        if outcome.is_ok() {
            outcome = import.input(input, args.again).await;
        }
    }
    let totals = import.totals;
    // After an error, acknowledged samples are in the log.
    let sealed = match &outcome {
        Ok(()) => store.seal_and_forget().await,
        Err(_) => Ok(()),
    };
    let closed = store.close().await;
    let printed = totals.print();
    outcome?;
    sealed?;
    closed?;
    printed?;
    match totals.refused {
        0 => Ok(()),
        refused => Err(ToolError::Incomplete(format!("{refused} samples were rejected"))),
    }
}

impl Totals {
    fn add(&mut self, outcome: &AppendOutcome) {
        self.accepted += outcome.accepted;
        self.held += outcome.duplicates;
        self.refused += outcome.rejected.total() as u64;
        for rejection in &outcome.rejections {
            let (labels, at_ms) = (&rejection.labels, rejection.timestamp_ms);
            let reason: RejectReason = rejection.reason;
            self.name(|| format!("{labels} at {at_ms}: {reason}"));
        }
        let exemplars = outcome.exemplars.counts();
        self.exemplars += exemplars.accepted;
        self.exemplars_left_out += exemplars.ignored + exemplars.dropped + exemplars.out_of_order;
        self.metadata += outcome.metadata_accepted;
    }

    fn name(&mut self, text: impl FnOnce() -> String) {
        if self.refused_named.len() < REFUSED_NAMED_MAX {
            self.refused_named.push(text());
        }
    }

    fn print(&self) -> Result<(), ToolError> {
        for refused in &self.refused_named {
            eprintln!("rejected: {refused}");
        }
        let more = self.refused - self.refused_named.len() as u64;
        if more > 0 {
            eprintln!("rejected: {more} more");
        }
        print_report(&format!(
            "imported {} samples, {} exemplars, metadata of {} metrics; {} samples were stored \
             already, {} were rejected, {} exemplars were omitted\n",
            self.accepted,
            self.exemplars,
            self.metadata,
            self.held,
            self.refused,
            self.exemplars_left_out
        ))
    }
}

/// Running import.
struct Import<'a> {
    store: &'a Store,
    head_bytes_max: u64,
    labels: AddedLabels,
    stored_days: StoredDays,
    totals: Totals,
}

impl<'a> Import<'a> {
    fn new(store: &'a Store, head_bytes_max: u64, labels: AddedLabels) -> Import<'a> {
        let stored_days = StoredDays::of(store);
        Import { store, head_bytes_max, labels, stored_days, totals: Totals::default() }
    }

    async fn input(&mut self, input: &Input, again: bool) -> Result<(), ToolError> {
        let labels = match input {
            Input::Text(_) => self.labels.clone(),
            Input::Block(_, meta) => self.labels.over(&meta.thanos.labels),
        };
        let note_name = input.note_name(&labels);
        let from = match again {
            true => Progress::default(),
            false => self.earlier_progress(input, &note_name).await?,
        };
        if from.is_done {
            eprintln!("{input}: imported already, {} samples; --again repeats it", from.samples);
            self.totals.held += usize::try_from(from.samples).unwrap_or(usize::MAX);
            return Ok(());
        }
        if from.position > 0 {
            eprintln!("{input}: continues after {} samples", from.samples);
        }
        let bar = match input {
            Input::Text(path) => {
                let len = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
                bar(Unit::Bytes, len, &input.to_string())
            }
            Input::Block(_, meta) => bar(Unit::Series, meta.stats.num_series, &input.to_string()),
        };
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let source = input.clone();
        let reading = tokio::task::spawn_blocking(move || match source {
            Input::Text(path) => read::read_text(&path, &labels, from, sender),
            Input::Block(folder, _) => read::read_block(&folder, &labels, from, sender),
        });
        let written = self.write(&note_name, receiver, &bar).await;
        bar.finish_and_clear();
        let read = reading.await;
        written?;
        match read {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Stopped::Format(error))) => Err(error.into()),
            Ok(Err(Stopped::Unwanted)) | Err(_) => {
                Err(ToolError::Incomplete(format!("{input} could not be read to its end")))
            }
        }
    }

    /// Returns the progress of an input in earlier imports.
    async fn earlier_progress(
        &self,
        input: &Input,
        note_name: &str,
    ) -> Result<Progress, ToolError> {
        let Some(note) = self.store.note(note_name).await? else {
            return Ok(Progress::default());
        };
        let Ok(progress) = serde_json::from_slice::<Progress>(&note) else {
            return Ok(Progress::default());
        };
        let is_same = match input {
            Input::Text(path) => read::is_same_text(path, &progress)?,
            // Names of blocks are unique.
            Input::Block(..) => true,
        };
        Ok(if is_same { progress } else { Progress::default() })
    }

    /// Removes samples that were stored before the import, and counts them.
    async fn without_stored(&mut self, batch: Batch) -> Result<Batch, ToolError> {
        if !self.stored_days.may_have(&batch) {
            return Ok(batch);
        }
        let remaining = without_stored(self.store, &self.stored_days, &batch).await?;
        self.totals.held += remaining.stored_count;
        Ok(remaining.batch)
    }

    /// Writes pieces as they arrive.
    async fn write(
        &mut self,
        note_name: &str,
        mut pieces: mpsc::Receiver<Piece>,
        bar: &ProgressBar,
    ) -> Result<(), ToolError> {
        let (mut noted_at, mut noted_samples) = (Instant::now(), 0);
        while let Some(piece) = pieces.recv().await {
            let Piece { batch, progress, invalid, invalid_count } = piece;
            let batch = self.without_stored(batch).await?;
            let outcome = self.store.append(batch).await?;
            self.totals.add(&outcome);
            self.totals.refused += invalid_count;
            for text in invalid {
                self.totals.name(|| text);
            }
            bar.set_position(progress.position);
            let head_bytes = self.store.stats().head_bytes as u64;
            let is_large = head_bytes > self.head_bytes_max;
            if is_large {
                info!(head = format_bytes(head_bytes), "sealing imported samples");
                self.store.seal_and_forget().await?;
            }
            let is_due = noted_at.elapsed() >= NOTE_INTERVAL
                || progress.samples.saturating_sub(noted_samples) >= NOTE_SAMPLES_MAX;
            if is_large || is_due || progress.is_done {
                let note = serde_json::to_vec(&progress)
                    .map_err(|error| ToolError::Incomplete(error.to_string()))?;
                self.store.set_note(note_name, &note).await?;
                (noted_at, noted_samples) = (Instant::now(), progress.samples);
                info!(samples = progress.samples, "import progress");
            }
        }
        Ok(())
    }
}

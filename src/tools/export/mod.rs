//! `tessella export`: a selection as OpenMetrics text.
//!
//! Series are written by family, and within a metric sorted by labels. A group of series is loaded at
//! a time, as many as the memory limit allows; of a larger series, a part of its time.

mod families;
mod groups;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::parse::{parse_selector, require_condition};
use formats::open_metrics::Writer;
use model::{
    Advance, Budget, Exemplar, ExemplarQuery, Labels, METRIC_NAME, MatchOp, Matcher, MetadataQuery,
    MetricMetadata, SampleBatch, SeriesSet, Source, TimeRange, is_stale,
};
use storage::Store;

use super::ToolError;
use super::store_args::StoreArgs;
use crate::flags::parse_positive_bytes;
use crate::time::Time;
use groups::{Groups, Loaded};

/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// Flags of `export`.
#[derive(Debug, Clone, clap::Args)]
pub struct ExportArgs {
    /// Selector of series, such as up{job="x"}; may be repeated, and each series is written once.
    #[arg(long = "match", value_name = "SELECTOR", required = true, value_parser = parse_matchers)]
    pub selectors: Vec<Selector>,

    /// Start of the samples, in seconds since the epoch or as RFC 3339; without it, that of the store.
    #[arg(long = "start", value_name = "TIME", value_parser = parse_time_ms, allow_hyphen_values = true)]
    pub start_ms: Option<i64>,

    /// End of the samples, in seconds since the epoch or as RFC 3339; without it, that of the store.
    #[arg(long = "end", value_name = "TIME", value_parser = parse_time_ms, allow_hyphen_values = true)]
    pub end_ms: Option<i64>,

    /// Output file; without it, standard output.
    #[arg(long = "output", value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Omission of native histograms, which OpenMetrics text cannot hold; without it, a selection with
    /// native histograms fails.
    #[arg(long = "skip-histograms")]
    pub skip_histograms: bool,

    /// Maximum memory of loaded samples, as a size.
    #[arg(long = "max-memory", value_name = "SIZE", default_value = "256MiB", value_parser = parse_positive_bytes)]
    pub memory_bytes_max: u64,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// Matchers of a selector.
#[derive(Debug, Clone)]
pub struct Selector(Vec<Matcher>);

fn parse_matchers(text: &str) -> Result<Selector, String> {
    let matchers = parse_selector(text).map_err(|error| error.to_string())?;
    require_condition(&matchers).map_err(|error| error.to_string())?;
    Ok(Selector(matchers))
}

fn parse_time_ms(text: &str) -> Result<i64, String> {
    Time::parse(text).map(Time::lookup_ms)
}

/// Counts of written and omitted samples.
#[derive(Debug, Default)]
struct Totals {
    series: u64,
    samples: u64,
    exemplars: u64,
    stale: u64,
    histograms: u64,
    nameless: u64,
    exemplars_left_out: u64,
}

/// Exports the selection.
pub(super) async fn run(args: ExportArgs) -> Result<(), ToolError> {
    let store = Store::open_once(&args.store.storage_url, args.store.options()?).await?;
    let done = export(&store, &args).await;
    let closed = store.close().await;
    let totals = done?;
    closed?;
    totals.print();
    Ok(())
}

async fn export(store: &Store, args: &ExportArgs) -> Result<Totals, ToolError> {
    let Some(path) = &args.output else {
        let out = BufWriter::with_capacity(WRITE_BYTES, io::stdout().lock());
        return write(store, args, out).await;
    };
    // Under another name until it is complete.
    let mut partial = path.clone().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let failed =
        |path: &Path, source: io::Error| ToolError::Output(format!("{}: {source}", path.display()));
    let file = File::create(&partial).map_err(|error| failed(&partial, error))?;
    let written = write(store, args, BufWriter::with_capacity(WRITE_BYTES, file)).await;
    let done = written.and_then(|totals| {
        std::fs::rename(&partial, path).map_err(|error| failed(path, error))?;
        Ok(totals)
    });
    if done.is_err() {
        // The caller reports the error; the partial file is useless.
        let _ = std::fs::remove_file(&partial);
    }
    done
}

async fn write(store: &Store, args: &ExportArgs, out: impl Write) -> Result<Totals, ToolError> {
    let mut export = Export {
        store,
        args,
        totals: Totals::default(),
        writer: Writer::new(out),
        batch: SampleBatch::new(),
    };
    if let Some(TimeRange { start_ms: first_ms, end_ms: last_ms }) = store.times().await {
        let start_ms = args.start_ms.unwrap_or(i64::MIN).max(first_ms);
        let end_ms = args.end_ms.unwrap_or(i64::MAX).min(last_ms);
        if start_ms <= end_ms {
            export.families(start_ms, end_ms).await?;
        }
    }
    export.writer.finish()?;
    Ok(export.totals)
}

/// Running export.
struct Export<'a, W> {
    store: &'a Store,
    args: &'a ExportArgs,
    totals: Totals,
    writer: Writer<W>,
    batch: Box<SampleBatch>,
}

impl<W: Write> Export<'_, W> {
    async fn families(&mut self, start_ms: i64, end_ms: i64) -> Result<(), ToolError> {
        let budget = Budget::unlimited();
        let selectors = |name: Option<&Matcher>| -> Vec<Vec<Matcher>> {
            let with_name = |selector: &Selector| selector.0.iter().chain(name).cloned().collect();
            self.args.selectors.iter().map(with_name).collect()
        };
        let query = |selectors| MetadataQuery {
            selectors,
            times: TimeRange::new(start_ms, end_ms),
            limit: 0,
        };
        let nameless = query(selectors(Some(&equal(METRIC_NAME, ""))));
        let nameless = self.store.series(&nameless, &budget).await?;
        self.totals.nameless = nameless.len() as u64;
        let names = self.store.label_values(METRIC_NAME, &query(selectors(None)), &budget).await?;
        let known = |metric: &str| -> Option<MetricMetadata> {
            let found = self.store.metadata(Some(metric), 1).found;
            found.first()?.entries.last().cloned()
        };
        for (family, names) in families::families(names, known) {
            let mut is_begun = false;
            for name in names {
                let named = equal(METRIC_NAME, &name);
                let query = query(selectors(Some(&named)));
                let series = self.store.series(&query, &budget).await?;
                let exemplars = self.exemplars(&query, &budget)?;
                let mut groups = Groups::new(series, start_ms, end_ms, self.args.memory_bytes_max);
                let mut exemplars = exemplars.into_iter().peekable();
                while let Some(loaded) = groups.next(self.store).await? {
                    if !is_begun {
                        self.writer.family(&family)?;
                        is_begun = true;
                    }
                    self.series(&loaded, &mut exemplars)?;
                }
                let left = exemplars.map(|(_, left)| left.len() as u64);
                self.totals.exemplars_left_out += left.sum::<u64>();
            }
        }
        Ok(())
    }

    /// Returns the exemplars of a metric, by series.
    fn exemplars(
        &mut self,
        query: &MetadataQuery,
        budget: &Budget,
    ) -> Result<Vec<(Labels, VecDeque<Exemplar>)>, ToolError> {
        let query = ExemplarQuery { selectors: query.selectors.clone(), times: query.times };
        let found = self.store.exemplars(&query, budget)?.found;
        Ok(found.into_iter().map(|series| (series.labels, series.exemplars.into())).collect())
    }

    fn series(
        &mut self,
        loaded: &Loaded,
        exemplars: &mut std::iter::Peekable<impl Iterator<Item = (Labels, VecDeque<Exemplar>)>>,
    ) -> Result<(), ToolError> {
        for (index, is_continued) in loaded.selected() {
            let labels = loaded.set.labels(index);
            let name = labels.metric_name();
            let takes_exemplars = name.ends_with("_total") || name.ends_with("_bucket");
            while let Some((_, left)) = exemplars.next_if(|(of, _)| of < labels) {
                self.totals.exemplars_left_out += left.len() as u64;
            }
            let mut unmatched = VecDeque::new();
            let waiting = match exemplars.peek_mut() {
                Some((of, waiting)) if of == labels && takes_exemplars => waiting,
                _ => &mut unmatched,
            };
            self.writer.series(labels);
            let before = self.totals.samples;
            let mut cursor = loaded.set.cursor(index);
            loop {
                self.batch.clear();
                let advance = cursor.next_batch(i64::MAX, &mut self.batch)?;
                if !self.batch.histograms.is_empty() && !self.args.skip_histograms {
                    return Err(ToolError::Incomplete(format!(
                        "the series {labels} has native histograms, which OpenMetrics text cannot \
                         hold: leave them out with --skip-histograms"
                    )));
                }
                self.totals.histograms += self.batch.histograms.len() as u64;
                let (times, values) = self.batch.samples();
                for (time_ms, value) in times.iter().zip(values) {
                    if is_stale(*value) {
                        self.totals.stale += 1;
                        continue;
                    }
                    let exemplar = match waiting.front() {
                        Some(first) if first.timestamp_ms <= *time_ms => waiting.pop_front(),
                        _ => None,
                    };
                    self.totals.exemplars += u64::from(exemplar.is_some());
                    self.writer.sample(*time_ms, *value, exemplar.as_ref())?;
                    self.totals.samples += 1;
                }
                if advance == Advance::End {
                    break;
                }
            }
            self.totals.series += u64::from(self.totals.samples > before && !is_continued);
        }
        Ok(())
    }
}

/// Returns a matcher of one value.
fn equal(name: &str, value: &str) -> Matcher {
    Matcher::new(MatchOp::Equal, name, value).expect("a plain value needs no pattern")
}

impl Totals {
    fn print(&self) {
        let omissions = [
            (self.histograms, "native histograms, which OpenMetrics text cannot hold"),
            (self.stale, "staleness markers, which OpenMetrics text cannot hold"),
            (self.nameless, "series without a metric name, which OpenMetrics text cannot hold"),
            (self.exemplars_left_out, "exemplars without a sample of a counter or bucket"),
        ];
        for (count, what) in omissions.into_iter().filter(|(count, _)| *count > 0) {
            eprintln!("omitted: {count} {what}");
        }
        eprintln!(
            "exported {} samples of {} series, {} exemplars",
            self.samples, self.series, self.exemplars
        );
    }
}

/// Shared set of loaded series.
pub(crate) type SharedSet = Arc<dyn SeriesSet>;

//! Types that all layers share: labels, matchers, samples, write batches, query budgets, and the
//! read interface between engine and storage.
//!
//! No I/O and no runtime.

pub mod batch;
pub mod budget;
pub mod calendar;
pub mod checkpoint;
pub mod cursor;
mod derived;
pub mod duration;
pub mod error;
pub mod exemplar;
pub mod hash;
pub mod histogram;
pub mod kernel;
mod label_order;
pub mod labels;
pub mod matcher;
pub mod memory;
pub mod metadata;
pub mod number_text;
pub mod re2;
mod reject_reason;
pub mod reservation;
pub mod sample;
pub mod source;
mod time_range;
pub mod varint;
pub mod windows;

pub use batch::{Batch, BatchExemplar, BatchMetadata, BatchSeries};
pub use budget::{
    Budget, BudgetCost, BudgetError, BudgetLimits, BudgetResource, BudgetView, HeldMemory,
};
pub use budget::{MemoryPool, ObjectStoreCost};
pub use checkpoint::Checkpoint;
pub use cursor::{
    Advance, Cursor, FilledSteps, HISTOGRAM_BATCH_LEN, LookupSteps, SAMPLE_BATCH_LEN, SampleBatch,
    StepRanges,
};
pub use derived::DerivedValues;
pub use error::{MatcherError, SourceError};
pub use exemplar::{Exemplar, SeriesExemplars};
pub use histogram::{Histogram, HistogramSample, ResetHint, Span};
pub use kernel::prefetch::prefetch;
pub use kernel::widest::widest;
pub use label_order::sort_label_sets;
pub use labels::{Labels, LabelsBuilder, LabelsError, METRIC_NAME};
pub use matcher::{MatchOp, Matcher};
pub use metadata::{KnownMetric, MetricKind, MetricMetadata};
pub use reject_reason::RejectReason;
pub use reservation::Reservation;
pub use sample::{STALE_NAN_BITS, is_any_stale, is_stale, stale_nan};
pub use smol_str::SmolStr;
pub use source::{Answer, BoxFuture, ExemplarQuery, MetadataQuery, Selection, SeriesSet, Source};
pub use time_range::TimeRange;
pub use windows::{
    FilledWindows, PERIOD_MAX, WINDOWS_MAX, WantedFact, WantedWindows, WindowFacts, WindowPart,
    WindowSamples, Windows,
};

//! Histogram frames: the payload of tag 16.
//!
//! Each sample is relative to the one before it, so that its size depends on its observations:
//! an unchanged bucket takes one bit. Layouts are written where they change; common buckets keep
//! their columns then.
//!
//! ```text
//! min time:64 │ before │ sample × count │ 0…0
//!
//! before:   0, or 1 number(min time − its time) fingerprint:32
//!
//! sample:   time │ control │ sum │ column × columns
//!           time, not of the first: by the delta of deltas d, as in the Gorilla payload
//!             0   d = 0      10 d:7      110 d:9      1110 d:12      1111 d:64
//!           control:
//!             0   as before: layout, hint, mode, excess, and how the start follows
//!             10  the very histogram of the sample before: nothing follows
//!             11  hint:2 mode:2 new layout:1 new excess:1 start:2
//!                 number(fold(time − start)) for start = 3
//!                 layout where it is new, number(fold(excess)) where that is
//!           mode  0 no count falls   1 counts may fall   2 they begin at 0 again
//!                 3 stale: neither sum nor columns follow, and neither is changed
//!           start 0 not known   1 that of the sample before   2 its time   3 written here,
//!                 and 1 from the next sample on
//!           sum   a float column
//!
//! layout:   integer:1 │ schema:8 │ threshold │ spans above zero │ spans below │ bounds
//!           threshold: code:8   0 for 0, c for 2^(c − 243), 255 for any, then threshold:64
//!           spans:     number(spans) │ ( number(fold(offset)) │ number(length) ) × spans
//!           bounds:    number(bounds) │ ( 0 number(bound × 1000), or 1 bound:64 ) × bounds
//! columns:  the zero bucket, buckets above zero, buckets below; where the counts are not
//!           integers, the count before them all
//!
//! integer column, by its growth g since the sample before, and g' and k, which are expected:
//!   the first     number(count)
//!   others        u: in mode 0 and 2: fold(g − g') if g <= 2g', else g;  in mode 1: fold(g − g')
//!                 0 × (u >> k) │ 1 │ the low k bits of u     where u >> k is below 16
//!                 0 × 16 │ number(u)                         else
//! float column, by its xor x with the sample before:
//!   0                                              x = 0
//!   10    significant bits                         x fits the last window
//!   11    leading zeros:6  significant − 1:6  significant bits
//!
//! number(n):  bits − 1:6 │ n:bits
//! fold(n):    2n, or −2n − 1 below 0
//! ```
//!
//! *Excess*: the count minus the zero bucket and all others, 0 unless NaN has been observed.
//!
//! *g'* and *k* are derived from earlier numbers of the column ([`column::IntegerColumn::advance`]),
//! as means with four fractional bits. The weight of the newest number is 1, then 1/2, twice 1/4,
//! four times 1/8, and 1/16 from then on. g' is the mean growth, rounded, and at least 0 in modes 0
//! and 2; k is ⌊log₂⌋ of the mean of u, and 0 below 2. After the first number, g' is 0 and the
//! mean of u is 2^(bits of the count / 3), after the second 2^(bits of the growth / 2); 0 for a 0.
//!
//! *Layouts*: a bucket keeps its column if the previous layout has the same schema, threshold,
//! bounds and number kind, and a bucket of the same index; other columns start empty. Spans are
//! stored in their fewest form: without empty ones, and with adjacent ones joined.
//!
//! *Hints* are returned as given. If the hint of the first sample is that the counter was not
//! reset, it holds only if the histogram *before* it in the series is still the same
//! ([`HistogramBefore`]). Its fingerprint is the crc32c of schema:1, sum, count, zero count, spans
//! and counts above zero, spans and counts below; all little endian, 8 bytes each, a span 4 and 4.

mod column;
mod decode;
mod encode;
mod layout;
#[cfg(test)]
mod tests;

use model::{Histogram, HistogramSample, ResetHint, Span};

pub use decode::HistogramDecoder;
pub use encode::{HistogramEncoder, encode_histograms};
pub(crate) use layout::canonical_spans;
pub use layout::{HISTOGRAM_BUCKETS_MAX, is_storable};

use column::{FloatColumn, IntegerColumn};
use layout::Layout;

/// Payload length from which a frame takes no more samples.
const PAYLOAD_BYTES_FULL: usize = 1 << 18;
/// Number of zeros before a number that is not in Rice code.
const ESCAPE_ZEROS: u32 = 16;
/// Code of a zero threshold that is not a power of two, and code of 2⁰.
const THRESHOLD_ANY: u64 = 255;
const THRESHOLD_ONE: i64 = 243;

/// Histogram that the hint of a later one refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistogramBefore {
    /// Time of the histogram.
    pub timestamp_ms: i64,
    /// Checksum of its value, as later writes may replace it.
    pub fingerprint: u32,
}

impl HistogramBefore {
    /// Returns the time and fingerprint by which a hint identifies this sample.
    pub fn of(sample: &HistogramSample) -> HistogramBefore {
        HistogramBefore {
            timestamp_ms: sample.timestamp_ms,
            fingerprint: fingerprint(&sample.histogram),
        }
    }
}

/// Returns a checksum of all data that decides on counter resets, and of the sum.
fn fingerprint(histogram: &Histogram) -> u32 {
    let mut sum = crc32c::crc32c(&histogram.schema.to_le_bytes());
    let mut add = |bytes: &[u8]| sum = crc32c::crc32c_append(sum, bytes);
    for number in [histogram.sum, histogram.count, histogram.zero_count] {
        add(&number.to_le_bytes());
    }
    let sides = [
        (&histogram.positive_spans, &histogram.positive_counts),
        (&histogram.negative_spans, &histogram.negative_counts),
    ];
    for (spans, counts) in sides {
        for Span { offset, length } in spans {
            add(&offset.to_le_bytes());
            add(&length.to_le_bytes());
        }
        for count in counts {
            add(&count.to_le_bytes());
        }
    }
    sum
}

/// Relation of the counts of a sample to those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// No count falls.
    Rising = 0,
    /// Counts may fall.
    Signed = 1,
    /// Counts start at 0 again.
    FromZero = 2,
    /// No counts: the sample is a staleness marker.
    Stale = 3,
}

/// Relation of a start timestamp to the sample before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartRule {
    /// Unknown.
    Unknown = 0,
    /// Same as before.
    Same = 1,
    /// Time of the sample before.
    TimeBefore = 2,
    /// Stored with the sample.
    Written = 3,
}

/// State that the next sample is relative to; the same in encoder and decoder.
#[derive(Debug, Clone)]
struct HistogramState {
    time_ms: i64,
    delta_ms: i64,
    start_ms: i64,
    start_rule: StartRule,
    hint: ResetHint,
    is_signed: bool,
    /// Set if the last sample was a staleness marker.
    is_stale: bool,
    /// Count minus the sum of all buckets.
    excess: i64,
    sum: FloatColumn,
    layout: Layout,
    /// One per column, if the layout has integers.
    integers: Vec<IntegerColumn>,
    /// One per column, if the layout has floats.
    floats: Vec<FloatColumn>,
}

impl HistogramState {
    fn new() -> HistogramState {
        HistogramState {
            time_ms: 0,
            delta_ms: 0,
            start_ms: 0,
            start_rule: StartRule::Unknown,
            hint: ResetHint::Unknown,
            is_signed: false,
            is_stale: false,
            excess: 0,
            sum: FloatColumn::default(),
            layout: Layout::empty(),
            integers: vec![IntegerColumn::default(); 1],
            floats: Vec::new(),
        }
    }

    /// Returns the start timestamp by a rule; `time_before_ms` is the time of the sample before.
    fn start_by(&self, rule: StartRule, time_before_ms: i64) -> i64 {
        match rule {
            StartRule::Unknown => 0,
            StartRule::Same | StartRule::Written => self.start_ms,
            StartRule::TimeBefore => time_before_ms,
        }
    }

    fn set_layout(&mut self, layout: Layout) {
        if layout.is_integer {
            self.integers = layout.carry(&self.layout, &self.integers);
            self.floats.clear();
        } else {
            self.floats = layout.carry(&self.layout, &self.floats);
            self.integers.clear();
        }
        self.layout = layout;
    }

    fn begin_at_zero(&mut self) {
        for column in &mut self.integers {
            column.value = 0;
        }
    }
}

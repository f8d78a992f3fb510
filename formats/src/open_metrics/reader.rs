//! Reading of OpenMetrics text, line by line.

use std::io::BufRead;

use model::{BatchMetadata, Exemplar, Labels};

use super::line::{self, Line, SampleLine};
use crate::error::FormatError;
use crate::lines::Lines;

/// Maximum length of a line, in bytes.
pub const LINE_BYTES_MAX: usize = 4 << 20;

/// An entry of a file.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// A sample.
    Sample(Sample),
    /// Metadata of a metric, from consecutive lines.
    Metadata(BatchMetadata),
}

/// A sample of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Its series.
    pub labels: Labels,
    /// Its timestamp, ms since the epoch.
    pub timestamp_ms: i64,
    /// Its value.
    pub value: f64,
    /// Its exemplar.
    pub exemplar: Option<Exemplar>,
}

/// Reads a file, one line at a time.
#[derive(Debug)]
pub struct Reader<R> {
    lines: Lines<R>,
    /// Metadata that have not been returned.
    metadata: Option<BatchMetadata>,
    /// Sample after the metadata.
    next: Option<Sample>,
    /// Series of the sample before.
    series: String,
    labels: Labels,
    has_ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// Creates a reader at the start of a file.
    pub fn new(path: &str, input: R) -> Reader<R> {
        Reader {
            lines: Lines::new(path, input, LINE_BYTES_MAX),
            metadata: None,
            next: None,
            series: String::new(),
            labels: Labels::empty(),
            has_ended: false,
        }
    }

    /// Bytes of the lines read so far.
    pub fn byte_count(&self) -> u64 {
        self.lines.byte_count
    }

    /// Returns the input.
    pub fn input(&self) -> &R {
        &self.lines.input
    }

    /// Returns the next entry; `None` after `# EOF`.
    ///
    /// Errors: an invalid line, a sample without a timestamp, a text without `# EOF` or with text
    /// after it.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, FormatError> {
        loop {
            if let Some(sample) = self.next.take() {
                return Ok(Some(Entry::Sample(sample)));
            }
            if self.has_ended {
                return Ok(self.metadata.take().map(Entry::Metadata));
            }
            if !self.lines.read()? {
                return Err(self.lines.wrong("the text does not end with # EOF"));
            }
            if let Some(entry) = self.take_line()? {
                return Ok(Some(entry));
            }
        }
    }

    /// Processes the current line.
    fn take_line(&mut self) -> Result<Option<Entry>, FormatError> {
        let bytes = std::mem::take(&mut self.lines.line);
        let taken = match std::str::from_utf8(&bytes) {
            Ok(text) => self.take_text(text),
            Err(_) => Err("bytes that are not UTF-8".to_owned()),
        };
        self.lines.line = bytes;
        let taken = taken.map_err(|detail| self.lines.wrong(detail))?;
        if self.has_ended && self.lines.read()? {
            return Err(self.lines.wrong("text after # EOF"));
        }
        Ok(taken)
    }

    fn take_text(&mut self, text: &str) -> Result<Option<Entry>, String> {
        match line::parse(text)? {
            Line::Help { metric, help } => Ok(self.describe(metric, |of| of.help = help)),
            Line::Type { metric, kind } => Ok(self.describe(metric, |of| of.kind = kind)),
            Line::Unit { metric, unit } => Ok(self.describe(metric, |of| of.unit = unit)),
            Line::Sample(sample) => {
                let sample = self.sample(sample)?;
                match self.metadata.take() {
                    None => Ok(Some(Entry::Sample(sample))),
                    Some(metadata) => {
                        self.next = Some(sample);
                        Ok(Some(Entry::Metadata(metadata)))
                    }
                }
            }
            Line::End => {
                self.has_ended = true;
                Ok(self.metadata.take().map(Entry::Metadata))
            }
        }
    }

    /// Adds to the metadata of a metric; returns those of the metric before.
    fn describe(&mut self, metric: String, set: impl FnOnce(&mut BatchMetadata)) -> Option<Entry> {
        let before = self.metadata.take_if(|before| before.metric != metric);
        let metadata = self.metadata.get_or_insert_with(|| BatchMetadata {
            metric,
            kind: model::MetricKind::Unknown,
            help: String::new(),
            unit: String::new(),
        });
        set(metadata);
        before.map(Entry::Metadata)
    }

    fn sample(&mut self, line: SampleLine<'_>) -> Result<Sample, String> {
        if line.series != self.series {
            self.labels = line::parse_series(line.series)?;
            self.series.clear();
            self.series.push_str(line.series);
        }
        let SampleLine { timestamp_ms, value, exemplar, .. } = line;
        Ok(Sample { labels: self.labels.clone(), timestamp_ms, value, exemplar })
    }
}

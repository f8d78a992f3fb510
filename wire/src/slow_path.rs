//! Slow path for labels: any encoding and order, sorted and checked as in Prometheus.

use std::ops::Range;

use model::labels::push_packed;
use model::{Labels, METRIC_NAME, RejectReason};

use crate::limits::{Limits, text_bytes_max};
use crate::protobuf::{Reader, WireError};
use crate::rejects::series_text;

/// Maximum number of characters of all labels of an exemplar.
///
/// Source: `ExemplarMaxLabelSetLength` in `model/exemplar/exemplar.go` of Prometheus.
pub(super) const EXEMPLAR_CHARS_MAX: usize = 128;

/// Labels as ranges of the message, before sorting and checking.
#[derive(Debug, Default)]
pub(super) struct UncheckedLabels {
    /// Labels in the order of the request, as in error texts.
    labels: Vec<Label>,
    /// Labels sorted by name, while they are packed.
    sorted: Vec<Label>,
    /// Number of labels; `labels` keeps at most one more than the limit.
    label_count: usize,
}

#[derive(Debug, Clone)]
struct Label {
    name: Range<usize>,
    value: Range<usize>,
}

impl UncheckedLabels {
    pub(super) fn clear(&mut self) {
        self.labels.clear();
        self.label_count = 0;
    }

    /// Adds a label.
    pub(super) fn push(&mut self, name: Range<usize>, value: Range<usize>, limits: &Limits) {
        self.label_count += 1;
        if self.label_count <= limits.labels_per_series_max.saturating_add(1) {
            self.labels.push(Label { name, value });
        }
    }

    /// Sets the number of labels if not all were added.
    pub(super) fn set_count(&mut self, count: usize) {
        self.label_count = count;
    }

    /// Adds a label from its message. An absent field is empty; of repeated fields the last one
    /// wins.
    pub(super) fn read_label(
        &mut self,
        label: Reader<'_>,
        limits: &Limits,
    ) -> Result<(), WireError> {
        let [name, value] = label_texts(label)?;
        self.push(name, value, limits);
        Ok(())
    }

    /// Collects the labels of one series of version 1 from its message.
    pub(super) fn read_series(
        &mut self,
        mut series: Reader<'_>,
        limits: &Limits,
    ) -> Result<(), WireError> {
        self.clear();
        while !series.is_at_end() {
            let key = series.key()?;
            match key.field {
                1 => self.read_label(series.nested(key)?, limits)?,
                _ => series.skip(key)?,
            }
        }
        Ok(())
    }

    /// Size of all names and values, in bytes.
    pub(super) fn text_bytes(&self) -> usize {
        self.labels.iter().map(|label| label.name.len() + label.value.len()).sum()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        (self.labels.capacity() + self.sorted.capacity()) * size_of::<Label>()
    }

    /// Sorts and checks the labels of a series and appends them in packed form. Labels with an
    /// empty value are checked like all others, then dropped.
    ///
    /// Errors: the reason, and a text with the labels as received; the arena is then unchanged.
    /// Source: `write` and `appendV2` in `storage/remote/write_handler.go` of Prometheus, and
    /// `getOrCreate` in `tsdb/head_append.go`, which drops empty values.
    pub(super) fn pack(
        &mut self,
        buffer: &[u8],
        limits: &Limits,
        arena: &mut Vec<u8>,
    ) -> Result<(), (RejectReason, String)> {
        if self.label_count > limits.labels_per_series_max {
            return Err(refused_for_count(self.label_count, limits, &self.series_text(buffer)));
        }
        if !self.are_valid(buffer) {
            let text = format!("invalid metric name or labels, got {}", self.series_text(buffer));
            return Err((RejectReason::InvalidLabels, text));
        }
        let text = |range: &Range<usize>| &buffer[range.clone()];
        self.sorted.clone_from(&self.labels);
        self.sorted.sort_unstable_by(|a, b| text(&a.name).cmp(text(&b.name)));
        if let Some(pair) = self.sorted.windows(2).find(|p| text(&p[0].name) == text(&p[1].name)) {
            let text = format!(
                "invalid labels for series, labels {}, duplicated label {}",
                self.series_text(buffer),
                series_text_name(text(&pair[0].name)),
            );
            return Err((RejectReason::DuplicateLabel, text));
        }
        self.sorted.retain(|label| !label.value.is_empty());
        for label in &self.sorted {
            check_lengths(label.name.len(), label.value.len(), limits).map_err(|text| {
                let series = self.series_text(buffer);
                (RejectReason::LabelLimit, format!("{text} for series {series}"))
            })?;
        }
        for label in &self.sorted {
            push_packed(arena, text(&label.name), text(&label.value));
        }
        Ok(())
    }

    /// Returns whether there is a metric name that is not empty, no label name is empty, and all
    /// texts are UTF-8.
    fn are_valid(&self, buffer: &[u8]) -> bool {
        let text = |range: &Range<usize>| std::str::from_utf8(&buffer[range.clone()]).ok();
        let mut has_metric_name = false;
        for label in &self.labels {
            let (Some(name), Some(value)) = (text(&label.name), text(&label.value)) else {
                return false;
            };
            let is_metric_name = name == METRIC_NAME;
            if name.is_empty() || (is_metric_name && value.is_empty()) {
                return false;
            }
            has_metric_name |= is_metric_name;
        }
        has_metric_name
    }

    /// Sorts and checks the labels of an exemplar; `None` if they are not UTF-8, repeated or too
    /// long.
    pub(super) fn pack_exemplar(&self, buffer: &[u8], limits: &Limits) -> Option<Labels> {
        let text = |range: &Range<usize>| &buffer[range.clone()];
        if self.label_count > limits.labels_per_series_max {
            return None;
        }
        let utf8 = |range: &Range<usize>| std::str::from_utf8(text(range)).ok();
        // Labels without a value are dropped, whatever their names are.
        let kept = self.labels.iter().filter(|label| !label.value.is_empty());
        let pairs = kept.map(|label| Some((utf8(&label.name)?, utf8(&label.value)?)));
        exemplar_labels(pairs.collect::<Option<Vec<_>>>()?)
    }

    fn series_text(&self, buffer: &[u8]) -> String {
        let text = |range: &Range<usize>| &buffer[range.clone()];
        series_text(self.labels.iter().map(|label| (text(&label.name), text(&label.value))))
    }
}

/// Sorts the labels of an exemplar and drops those without a value. `None` if a name is empty or
/// repeated, or if they are too long.
pub(super) fn exemplar_labels<T: AsRef<str>>(mut pairs: Vec<(T, T)>) -> Option<Labels> {
    pairs.retain(|(_, value)| !value.as_ref().is_empty());
    pairs.sort_by(|(a, _), (b, _)| a.as_ref().cmp(b.as_ref()));
    let mut packed = Vec::new();
    let (mut before, mut chars) = ("", 0);
    for (name, value) in &pairs {
        let (name, value) = (name.as_ref(), value.as_ref());
        chars += name.chars().count() + value.chars().count();
        if name <= before || chars > EXEMPLAR_CHARS_MAX {
            return None;
        }
        push_packed(&mut packed, name.as_bytes(), value.as_bytes());
        before = name;
    }
    Some(Labels::from_checked_bytes(&packed))
}

/// Returns the ranges of the name and the value of a label message.
fn label_texts(mut label: Reader<'_>) -> Result<[Range<usize>; 2], WireError> {
    let mut texts = [0..0, 0..0];
    while !label.is_at_end() {
        let key = label.key()?;
        match key.field {
            1 | 2 => {
                let text = label.nested(key)?;
                texts[key.field as usize - 1] = text.position()..text.end();
            }
            _ => label.skip(key)?,
        }
    }
    Ok(texts)
}

/// Checks that bytes are a label message.
pub(super) fn check_label(label: Reader<'_>) -> Result<(), WireError> {
    label_texts(label).map(drop)
}

fn refused_for_count(count: usize, limits: &Limits, series: &str) -> (RejectReason, String) {
    let (limit, name) = (limits.labels_per_series_max, limits.names.labels_per_series_max);
    let text = format!("{count} labels are over the limit of {limit} ({name}) for series {series}");
    (RejectReason::LabelLimit, text)
}

/// Checks the lengths of a label's name and value.
///
/// Errors: a text to which the caller adds the series.
pub(super) fn check_lengths(name: usize, value: usize, limits: &Limits) -> Result<(), String> {
    for (what, length, limit, limit_name) in [
        ("label name", name, limits.label_name_bytes_max, limits.names.label_name_bytes_max),
        ("label value", value, limits.label_value_bytes_max, limits.names.label_value_bytes_max),
    ] {
        let limit = text_bytes_max(limit);
        if length > limit {
            return Err(format!(
                "{what} of {length} bytes is over the limit of {limit} ({limit_name})"
            ));
        }
    }
    Ok(())
}

/// Formats a label name for an error text, truncated to 256 bytes.
fn series_text_name(name: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 256;
    String::from_utf8_lossy(&name[..name.len().min(SHOWN_BYTES_MAX)]).into_owned()
}

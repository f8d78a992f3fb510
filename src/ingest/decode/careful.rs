//! The careful path: labels in any order and encoding, checked and refused as Prometheus does.

use std::ops::Range;

use model::METRIC_NAME;
use model::labels::push_packed;

use super::super::limits::{LABEL_NAME_FLAG, LABEL_VALUE_FLAG, LABELS_FLAG, Limits};
use super::super::rejects::{Reason, series_text};
use super::super::wire::{LENGTH, Reader, WireError};
use super::text_bytes_max;

/// Working memory for the labels of one series.
#[derive(Debug, Default)]
pub(super) struct CarefulLabels {
    /// Copies of the texts, end to end.
    texts: Vec<u8>,
    labels: Vec<Label>,
    /// How many labels the series has; only as many as the limit allows are kept, and one more.
    label_count: usize,
}

#[derive(Debug, Clone)]
struct Label {
    name: Range<usize>,
    value: Range<usize>,
}

impl CarefulLabels {
    /// Collects the labels of one series from its message, in the order of the request.
    pub(super) fn read(
        &mut self,
        mut series: Reader<'_>,
        limits: &Limits,
    ) -> Result<(), WireError> {
        self.texts.clear();
        self.labels.clear();
        self.label_count = 0;
        while !series.is_at_end() {
            let key = series.key()?;
            if key.field != 1 {
                series.skip(key)?;
                continue;
            }
            key.expect(LENGTH)?;
            let label = series.message()?;
            self.label_count += 1;
            if self.label_count <= limits.labels_per_series_max.saturating_add(1) {
                self.read_label(label)?;
            }
        }
        Ok(())
    }

    /// Fields may be absent, which stands for the empty text, or repeated: the last one wins.
    fn read_label(&mut self, mut label: Reader<'_>) -> Result<(), WireError> {
        let (mut name, mut value) = (&[][..], &[][..]);
        while !label.is_at_end() {
            let key = label.key()?;
            match key.field {
                1 | 2 => {
                    key.expect(LENGTH)?;
                    let text = label.message()?.rest();
                    *(if key.field == 1 { &mut name } else { &mut value }) = text;
                }
                _ => label.skip(key)?,
            }
        }
        let name = self.push_text(name);
        let value = self.push_text(value);
        self.labels.push(Label { name, value });
        Ok(())
    }

    fn push_text(&mut self, text: &[u8]) -> Range<usize> {
        let start = self.texts.len();
        self.texts.extend_from_slice(text);
        start..self.texts.len()
    }

    /// Sorts and checks the labels and appends them in packed form, those with an empty value
    /// left out.
    ///
    /// Errors: the reason, and the words for the sender. The arena is as before then.
    pub(super) fn pack(
        &mut self,
        limits: &Limits,
        arena: &mut Vec<u8>,
    ) -> Result<(), (Reason, String)> {
        if self.label_count > limits.labels_per_series_max {
            return Err(refused_for_count(self.label_count, limits, &self.series_text()));
        }
        let texts = &self.texts;
        let text = |range: &Range<usize>| &texts[range.clone()];
        self.labels.sort_by(|a, b| text(&a.name).cmp(text(&b.name)));

        let mut has_metric_name = false;
        let mut is_valid = true;
        for label in &self.labels {
            let (name, value) = (text(&label.name), text(&label.value));
            let is_metric_name = name == METRIC_NAME.as_bytes();
            has_metric_name |= is_metric_name;
            is_valid &= !name.is_empty();
            is_valid &= !is_metric_name || !value.is_empty();
            is_valid &= std::str::from_utf8(name).is_ok() && std::str::from_utf8(value).is_ok();
        }
        if !has_metric_name || !is_valid {
            let text = format!("invalid metric name or labels, got {}", self.series_text());
            return Err((Reason::InvalidLabels, text));
        }
        if let Some(pair) = self.labels.windows(2).find(|p| text(&p[0].name) == text(&p[1].name)) {
            let text = format!(
                "invalid labels for series, labels {}, duplicated label {}",
                self.series_text(),
                series_text_name(text(&pair[0].name)),
            );
            return Err((Reason::DuplicateLabel, text));
        }
        for label in &self.labels {
            check_lengths(&label.name, &label.value, limits)
                .map_err(|text| (Reason::LabelLimit, format!("{text}{}", self.series_text())))?;
        }
        for label in self.labels.iter().filter(|label| !label.value.is_empty()) {
            push_packed(arena, text(&label.name), text(&label.value));
        }
        Ok(())
    }

    fn series_text(&self) -> String {
        let text = |range: &Range<usize>| &self.texts[range.clone()];
        series_text(self.labels.iter().map(|label| (text(&label.name), text(&label.value))))
    }
}

fn refused_for_count(count: usize, limits: &Limits, series: &str) -> (Reason, String) {
    let limit = limits.labels_per_series_max;
    let text = format!(
        "{count} labels are over the limit of {limit} (--{LABELS_FLAG}) for series {series}"
    );
    (Reason::LabelLimit, text)
}

fn check_lengths(name: &Range<usize>, value: &Range<usize>, limits: &Limits) -> Result<(), String> {
    for (what, length, limit, flag) in [
        ("label name", name.len(), limits.label_name_bytes_max, LABEL_NAME_FLAG),
        ("label value", value.len(), limits.label_value_bytes_max, LABEL_VALUE_FLAG),
    ] {
        let limit = text_bytes_max(limit);
        if length > limit {
            return Err(format!(
                "{what} of {length} bytes is over the limit of {limit} (--{flag}) for series "
            ));
        }
    }
    Ok(())
}

/// A label name for an error text, cut off where it is absurdly long.
fn series_text_name(name: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 256;
    String::from_utf8_lossy(&name[..name.len().min(SHOWN_BYTES_MAX)]).into_owned()
}

//! Data that a script has loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::histogram::decide_hint;
use model::labels::METRIC_NAME;
use model::memory::MemorySource;
use model::{Labels, Matcher};

use crate::histogram::{Classic, Histogram};
use crate::script::{Load, LoadedSample};
use crate::series::SeriesValue;

/// Data that a script has loaded so far.
#[derive(Debug, Default)]
pub struct Dataset {
    samples: MemorySource,
    with_histograms: BTreeSet<Labels>,
    with_start_times: BTreeSet<Labels>,
}

impl Dataset {
    /// Returns all samples.
    pub fn samples(&self) -> &MemorySource {
        &self.samples
    }

    /// Adds the data of a load command.
    ///
    /// Errors: an invalid histogram, or a classic one that cannot be converted.
    pub fn load(&mut self, load: &Load) -> Result<(), String> {
        for (labels, samples) in &load.series {
            for sample in samples {
                self.add(labels, sample)?;
            }
        }
        if load.with_custom_buckets { self.load_custom_buckets(load) } else { Ok(()) }
    }

    /// Removes all data.
    pub fn clear(&mut self) {
        *self = Dataset::default();
    }

    /// Returns whether the matchers select a series with native histograms.
    pub fn selects_histograms(&self, matchers: &[Matcher]) -> bool {
        self.with_histograms.iter().any(|labels| passes(labels, matchers))
    }

    /// Returns whether the matchers select a series with start timestamps.
    pub fn selects_start_times(&self, matchers: &[Matcher]) -> bool {
        self.with_start_times.iter().any(|labels| passes(labels, matchers))
    }

    fn add(&mut self, labels: &Labels, sample: &LoadedSample) -> Result<(), String> {
        if sample.start_time_ms.is_some() && !self.with_start_times.contains(labels) {
            self.with_start_times.insert(labels.clone());
        }
        let start_ms = sample.start_time_ms.unwrap_or(0);
        match &sample.value {
            SeriesValue::Omitted => Ok(()),
            SeriesValue::Float(value) => {
                self.samples.append_with_start(labels, sample.time_ms, *value, start_ms);
                Ok(())
            }
            SeriesValue::Histogram(histogram) => {
                self.add_histogram(labels, sample.time_ms, histogram, start_ms)
            }
        }
    }

    fn add_histogram(
        &mut self,
        labels: &Labels,
        time_ms: i64,
        histogram: &Histogram,
        start_ms: i64,
    ) -> Result<(), String> {
        if !self.with_histograms.contains(labels) {
            self.with_histograms.insert(labels.clone());
        }
        let mut histogram = histogram.to_sample()?;
        let previous = self.samples.last_histogram(labels);
        histogram.reset_hint = decide_hint(previous.map(|sample| &*sample.histogram), &histogram);
        self.samples.append_histogram(labels, time_ms, Arc::new(histogram), start_ms);
        Ok(())
    }

    /// Adds the classic histograms of a command as native histograms with custom buckets.
    fn load_custom_buckets(&mut self, load: &Load) -> Result<(), String> {
        let mut classics: BTreeMap<(Labels, i64), Classic> = BTreeMap::new();
        for (labels, samples) in &load.series {
            let Some((part, base)) = classic_part(labels) else { continue };
            for sample in samples {
                let SeriesValue::Float(value) = sample.value else { continue };
                let classic = classics.entry((base.clone(), sample.time_ms)).or_default();
                match part {
                    ClassicPart::Bucket(bound) => classic.set_bucket(bound, value),
                    ClassicPart::Count => classic.set_count(value),
                    ClassicPart::Sum => classic.set_sum(value),
                }
            }
        }
        for ((labels, time_ms), classic) in classics {
            let histogram = classic
                .to_custom()
                .map_err(|error| format!("{labels} at {time_ms} ms: {error}"))?;
            self.add_histogram(&labels, time_ms, &histogram, 0)?;
        }
        Ok(())
    }
}

fn passes(labels: &Labels, matchers: &[Matcher]) -> bool {
    matchers.iter().all(|matcher| matcher.matches(labels.get(matcher.name())))
}

#[derive(Clone, Copy)]
enum ClassicPart {
    Bucket(f64),
    Count,
    Sum,
}

/// Returns the part of a classic histogram that a series holds, and the labels of the histogram.
fn classic_part(labels: &Labels) -> Option<(ClassicPart, Labels)> {
    let name = labels.metric_name();
    let (part, name) = if let Some(name) = name.strip_suffix("_bucket") {
        let bound: f64 = labels.get("le").parse().ok()?;
        if bound.is_nan() {
            return None;
        }
        (ClassicPart::Bucket(bound), name)
    } else if let Some(name) = name.strip_suffix("_count") {
        (ClassicPart::Count, name)
    } else {
        (ClassicPart::Sum, name.strip_suffix("_sum")?)
    };
    let mut base = labels.to_builder();
    base.set(METRIC_NAME, name).remove("le");
    Some((part, base.build()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{Command, Script};

    fn loaded(text: &str) -> Dataset {
        let mut data = Dataset::default();
        for command in Script::parse(text).unwrap().commands {
            match command {
                Command::Load(load) => data.load(&load).unwrap(),
                Command::Clear => data.clear(),
                Command::Eval(_) => panic!("no eval here"),
            }
        }
        data
    }

    #[test]
    fn classic_histograms_are_loaded_twice() {
        let data = loaded(
            "load_with_nhcb 1m\n  h_bucket{le=\"1\"} 1 2\n  h_bucket{le=\"+Inf\"} 3 4\n  h_sum 5 6\n",
        );
        let floats = data.samples().iter().filter(|(_, times, _)| !times.is_empty());
        assert_eq!(floats.count(), 3);
        let name = Labels::from_pairs([("__name__", "h")]);
        let (_, histograms) = data.samples().histograms().find(|(l, _)| **l == name).unwrap();
        let sums: Vec<(i64, f64, f64)> = histograms
            .iter()
            .map(|s| (s.timestamp_ms, s.histogram.count, s.histogram.sum))
            .collect();
        assert_eq!(sums, [(0, 3.0, 5.0), (60_000, 4.0, 6.0)]);
    }

    #[test]
    fn selectors_reach_histograms_and_start_times() {
        let data = loaded("load 1m\n  a{x=\"1\"} {{}}\n  b@st -1m\n  b 1\n  c 1\n");
        let named = |name: &str| vec![Matcher::equal(METRIC_NAME, name)];
        assert!(data.selects_histograms(&named("a")) && !data.selects_start_times(&named("a")));
        assert!(data.selects_start_times(&named("b")) && !data.selects_histograms(&named("b")));
        assert!(!data.selects_start_times(&named("c")) && !data.selects_histograms(&named("c")));
        assert!(!loaded("load 1m\n  a {{}}\n\nclear\n").selects_histograms(&named("a")));
    }
}

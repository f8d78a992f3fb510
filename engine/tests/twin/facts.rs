//! Facts of windows that a source writes change no bit of an answer: a source that knows some of
//! them, against one that returns samples alone.

use std::sync::Arc;

use model::{
    Advance, Cursor, FilledWindows, SampleBatch, SourceError, WINDOWS_MAX, WantedFact, WindowFacts,
    WindowSamples, Windows, is_stale,
};
use proptest::prelude::*;

use crate::data::{Case, cases, data, source};
use crate::gaps::answer;
use crate::ranges::{FUNCTIONS, call};
use crate::wrapped::Wrapped;

/// Knows facts of windows, except for some of them.
struct KnowingCursor {
    /// Without staleness markers.
    samples: Vec<(i64, f64)>,
    at: usize,
    /// Every n-th window is unknown.
    unknown: u64,
}

/// Reads all samples of a cursor. The facts of every n-th window are unknown.
pub(crate) fn knowing<'a>(mut inner: Box<dyn Cursor + 'a>, unknown: u64) -> Box<dyn Cursor + 'a> {
    let (mut batch, mut samples) = (SampleBatch::new(), Vec::new());
    while {
        batch.clear();
        let advance = inner.next_batch(i64::MAX, &mut batch).expect("it is in memory");
        let (times, values) = batch.samples();
        samples.extend(times.iter().copied().zip(values.iter().copied()));
        advance == Advance::Full
    } {}
    samples.retain(|(_, value)| !is_stale(*value));
    Box::new(KnowingCursor { samples, at: 0, unknown })
}

impl KnowingCursor {
    fn seen(&self, windows: Windows, window: usize) -> &[(i64, f64)] {
        let until = |time_ms: i64| self.samples.partition_point(|(time, _)| *time <= time_ms);
        &self.samples[until(windows.after_ms(window))..until(windows.end_ms(window))]
    }
}

/// Returns the fact of some samples, if it does not depend on the order of additions.
fn fact(samples: &[(i64, f64)], wanted: WantedFact) -> Option<f64> {
    let (first, last) = (samples.first()?.1, samples.last()?.1);
    let extreme = |beats: fn(f64, f64) -> bool| {
        let numbers = samples.iter().map(|(_, value)| *value).filter(|value| !value.is_nan());
        Some(numbers.reduce(|best, v| if beats(v, best) { v } else { best }).unwrap_or(last))
    };
    match wanted {
        WantedFact::Ends => Some(last),
        WantedFact::Difference => Some(last - first),
        WantedFact::Increase => {
            let falls = || samples.windows(2).filter(|pair| pair[1].1 < pair[0].1);
            (falls().count() <= 32).then(|| falls().fold(last - first, |sum, pair| sum + pair[0].1))
        }
        WantedFact::Min => extreme(|a, b| a < b),
        WantedFact::Max => extreme(|a, b| a > b),
        WantedFact::Sum => {
            let sum: f64 = samples.iter().map(|(_, value)| value).sum();
            sum.is_finite().then_some(sum)
        }
    }
}

impl Cursor for KnowingCursor {
    fn next_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, SourceError> {
        while let Some((time_ms, value)) = self.samples.get(self.at)
            && *time_ms <= until_ms
        {
            if batch.is_full() {
                return Ok(Advance::Full);
            }
            batch.push(*time_ms, *value);
            self.at += 1;
        }
        let is_end = self.at == self.samples.len();
        Ok(if is_end { Advance::End } else { Advance::Reached })
    }

    fn fill_windows(
        &mut self,
        windows: Windows,
        wanted: WantedFact,
        facts: &mut WindowFacts,
    ) -> Result<FilledWindows, SourceError> {
        let samples = |window: usize| {
            let seen = self.seen(windows, window);
            WindowSamples {
                count: seen.len(),
                first_ms: seen.first().map_or(0, |(time, _)| *time),
                last_ms: seen.last().map_or(0, |(time, _)| *time),
            }
        };
        let is_alike = |window: usize, period: usize| {
            let (found, moved_ms) = (samples(window), period as i64 * windows.step_ms);
            let before = samples(window - period);
            found.count == before.count
                && (found.count == 0
                    || found.first_ms - moved_ms == before.first_ms
                        && found.last_ms - moved_ms == before.last_ms)
        };
        let is_known = |window: usize| {
            let number =
                windows.end_ms(window).unsigned_abs() / windows.step_ms.max(1).unsigned_abs();
            !(number * 31 + 7).is_multiple_of(self.unknown)
        };
        let most = windows.count.min(WINDOWS_MAX);
        let alike = |period: usize| {
            period + (period..most).take_while(|window| is_alike(*window, period)).count()
        };
        let period = [1, 2, 3, 5].into_iter().find(|period| alike(*period) > *period);
        let (period, most) =
            period.map_or((most, most), |period| (period, alike(period).min(most)));
        let mut count = 0;
        while count < most && is_known(count) {
            let seen = self.seen(windows, count);
            if count < period {
                facts.set_samples(count, samples(count));
            }
            if let Some((_, value)) = seen.first() {
                let Some(fact) = fact(seen, wanted) else { break };
                (facts.first[count], facts.fact[count]) = (*value, fact);
            }
            count += 1;
        }
        let after_ms = windows.after_ms(count);
        let new_samples =
            self.samples[self.at..].iter().take_while(|(time, _)| *time <= after_ms).count();
        self.at += new_samples;
        let period = period.min(count);
        Ok(FilledWindows { windows: count, period, new_samples, summarized: 0 })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn known_facts_change_no_answer(
        case in cases(),
        steps in 1_i64..40,
        is_even in any::<bool>(),
        offset_ms in -5_000_i64..5_000,
        unknown in prop_oneof![Just(2_u64), Just(50), Just(1_000_003)],
    ) {
        let step_ms = if is_even { steps * 1_000 } else { case.step_ms };
        let case = Case { step_ms, ..case };
        let source = source(&data(case.seed, case.series_count));
        let offset_ms = if is_even { 0 } else { offset_ms };
        let range = format!("m[{}ms]", case.range_ms);
        let mut queries: Vec<String> = FUNCTIONS.iter()
            .map(|(name, _)| call(name, &format!("{range} offset {offset_ms}ms")))
            .collect();
        queries.push(format!("rate({range} @ end())"));
        queries.push(format!("increase({range} anchored)"));
        queries.push(format!("sum by (g) (rate({range}))"));
        queries.push(format!("max_over_time(rate(m[4s])[{}ms:1s])", case.range_ms));
        for query in queries {
            let known = Wrapped::new(source.clone(), Arc::new(move |inner| knowing(inner, unknown)));
            let (found, _) = answer(&case, Arc::new(known), &query);
            let (expected, _) = answer(&case, source.clone(), &query);
            prop_assert_eq!(found, expected, "{}", query);
        }
    }
}

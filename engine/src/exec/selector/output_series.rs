//! Output series of an operator over loaded series, with or without the names of metrics.

use std::sync::{Arc, OnceLock};

use model::labels::push_packed;
use model::{Labels, METRIC_NAME, SeriesSet, prefetch};

use crate::exec::operator::{Context, DerivedOfSeries, LABELS_AHEAD, SeriesMeta, is_schema_label};

/// Key of the flag that the series are sorted, among the values derived from them.
const ARE_SORTED: &[u8] = b"sorted";

/// Output series of an operator.
pub(in crate::exec) struct OutputSeries {
    /// Computed on first use if `are_sorted` is already known: an aggregation that finds shared
    /// groups reads no labels.
    metas: OnceLock<Vec<SeriesMeta>>,
    /// True if they are known to be sorted by labels, each label set once.
    pub(in crate::exec) are_sorted: bool,
    /// True if they are those of a set, and the operation drops the name of the metric.
    drop_name: bool,
}

impl OutputSeries {
    /// Returns series that may be in any order.
    pub(in crate::exec) fn unsorted(metas: Vec<SeriesMeta>) -> OutputSeries {
        OutputSeries { metas: OnceLock::from(metas), are_sorted: false, drop_name: false }
    }

    /// Returns the series of a set, after an operation that drops the name of the metric if
    /// `drop_name`.
    ///
    /// Series of one metric stay sorted without its name, if no label sorts before the name.
    pub(in crate::exec) fn of_set(
        ctx: &Context,
        set: &dyn SeriesSet,
        drop_name: bool,
    ) -> OutputSeries {
        if !drop_name || ctx.delayed_name_removal {
            return OutputSeries { metas: OnceLock::new(), are_sorted: true, drop_name };
        }
        let derived = DerivedOfSeries::of_set(ctx, set, drop_name);
        if let Some(are_sorted) = derived.and_then(|derived| derived.find(ARE_SORTED)) {
            return OutputSeries { metas: OnceLock::new(), are_sorted: *are_sorted, drop_name };
        }
        let (metas, are_sorted) = unnamed(ctx, set);
        if let Some(derived) = derived {
            derived.keep(ARE_SORTED, &Arc::new(are_sorted), size_of::<bool>());
        }
        OutputSeries { metas: OnceLock::from(metas), are_sorted, drop_name }
    }

    /// Returns the labels of the series, which are those of the same set.
    pub(in crate::exec) fn metas(&self, ctx: &Context, set: &dyn SeriesSet) -> &[SeriesMeta] {
        let drop_name = self.drop_name;
        self.metas.get_or_init(|| match drop_name && !ctx.delayed_name_removal {
            true => unnamed(ctx, set).0,
            false => labels_of(set)
                .map(|labels| SeriesMeta { labels: labels.clone(), drop_name })
                .collect(),
        })
    }

    /// Returns the labels of series that are not those of a set.
    pub(in crate::exec) fn known_metas(&self) -> &[SeriesMeta] {
        self.metas.get().expect("only labels of a set are computed later")
    }

    /// Returns the values derived from the same series.
    pub(in crate::exec) fn derived<'a>(
        &self,
        ctx: &Context,
        set: &'a dyn SeriesSet,
    ) -> Option<DerivedOfSeries<'a>> {
        DerivedOfSeries::of_set(ctx, set, self.drop_name)
    }
}

/// Iterates over the labels of a set, which are prefetched.
fn labels_of(set: &dyn SeriesSet) -> impl Iterator<Item = &Labels> {
    (0..set.len()).map(|index| {
        if index + LABELS_AHEAD < set.len() {
            prefetch(set.labels(index + LABELS_AHEAD).as_bytes());
        }
        set.labels(index)
    })
}

/// Returns the series of a set without the name of the metric, and whether they are known to be
/// sorted.
fn unnamed(ctx: &Context, set: &dyn SeriesSet) -> (Vec<SeriesMeta>, bool) {
    let first_name = (!set.is_empty()).then(|| leading_name(set.labels(0))).flatten();
    let mut are_sorted = first_name.is_some();
    let output = |labels: &Labels| {
        if let Some(name) = &first_name
            && let Some(labels) = without_leading(labels, name)
        {
            return SeriesMeta { labels, drop_name: true };
        }
        are_sorted = false;
        SeriesMeta { labels: labels.clone(), drop_name: false }.dropping_name(ctx)
    };
    let metas = labels_of(set).map(output).collect();
    (metas, are_sorted)
}

/// Returns the packed name of the metric, if it is the first label.
fn leading_name(labels: &Labels) -> Option<Vec<u8>> {
    let (name, value) = labels.iter_bytes().next()?;
    let mut packed = Vec::new();
    push_packed(&mut packed, name, value);
    (name == METRIC_NAME.as_bytes()).then_some(packed)
}

/// Returns the labels after a packed name; `None` if they begin otherwise, or if others describe
/// the metric, too.
fn without_leading(labels: &Labels, name: &[u8]) -> Option<Labels> {
    let rest = Labels::from_checked_bytes(labels.as_bytes().strip_prefix(name)?);
    let mut next = rest.iter().take_while(|(name, _)| name.starts_with("__"));
    (!next.any(|(name, _)| is_schema_label(name))).then_some(rest)
}

#[cfg(test)]
mod tests {
    use model::{Budget, Cursor};

    use super::*;
    use crate::tile::TileShape;

    struct Set(Vec<Labels>);

    impl SeriesSet for Set {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn labels(&self, series_index: usize) -> &Labels {
            &self.0[series_index]
        }

        fn cursor(&self, _series_index: usize) -> Box<dyn Cursor + '_> {
            unreachable!("only labels are read")
        }

        fn sample_count_estimate(&self, _series_index: usize) -> usize {
            0
        }

        fn has_histograms(&self, _series_index: usize) -> bool {
            false
        }

        fn encoded_bytes(&self) -> usize {
            0
        }
    }

    /// Checks the series without names, and that they are sorted if they are said to be.
    fn check(all: &[&[(&str, &str)]], are_sorted: bool) {
        let mut labels: Vec<Labels> =
            all.iter().map(|pairs| Labels::from_pairs(pairs.iter().copied())).collect();
        labels.sort();
        let ctx = Context::new(Budget::unlimited(), TileShape::default(), false);
        let set = Set(labels.clone());
        let output = OutputSeries::of_set(&ctx, &set, true);
        let whole = |labels| SeriesMeta { labels, drop_name: false }.dropping_name(&ctx);
        let expected: Vec<SeriesMeta> = labels.into_iter().map(whole).collect();
        assert_eq!(output.metas(&ctx, &set), expected);
        assert_eq!(output.are_sorted, are_sorted, "{all:?}");
        let ascend = |pair: &[SeriesMeta]| pair[0].labels < pair[1].labels;
        assert!(!are_sorted || expected.windows(2).all(ascend));
    }

    #[test]
    fn series_of_one_metric_stay_sorted_without_its_name() {
        check(&[&[("__name__", "a")], &[("__name__", "a"), ("b", "1")]], true);
        check(&[&[("__name__", "a"), ("__x__", "1")], &[("__name__", "a"), ("b", "1")]], true);
        check(&[], false);
    }

    #[test]
    fn other_series_may_be_equal_or_unsorted_without_names() {
        check(&[&[("__name__", "a"), ("c", "1")], &[("__name__", "b"), ("c", "1")]], false);
        check(&[&[("__name__", "a")], &[("Z", "1"), ("__name__", "a")]], false);
        check(&[&[("__name__", "a"), ("__type__", "t")], &[("__name__", "a")]], false);
        check(&[&[("__name__", "a"), ("__unit__", "u")], &[("__name__", "a")]], false);
        check(&[&[("c", "1")], &[("c", "2")]], false);
    }
}

//! Output series of an operator over loaded series, with or without the names of metrics.

use std::sync::{Arc, OnceLock};

use model::labels::push_packed;
use model::{Labels, METRIC_NAME, SeriesSet, prefetch};

use crate::exec::operator::{Context, DerivedOfSeries, LABELS_AHEAD, SeriesMeta, is_schema_label};

/// Key of whether series are sorted, among the values derived from them.
const ARE_SORTED: &[u8] = b"sorted";

/// Output series of an operator.
pub(in crate::exec) struct OutputSeries {
    /// Set at once unless `are_sorted` is known: an aggregation may know its groups, and need no labels.
    metas: OnceLock<Vec<SeriesMeta>>,
    /// True if they are known to be sorted by labels, each label set once.
    pub(in crate::exec) are_sorted: bool,
    /// True if the operation drops the name of the metric.
    pub(in crate::exec) drop_name: bool,
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
        if !drop_name {
            return OutputSeries { metas: OnceLock::new(), are_sorted: true, drop_name };
        }
        let derived = DerivedOfSeries::of_set(ctx, set, drop_name);
        if let Some(are_sorted) = derived.and_then(|derived| derived.find(ARE_SORTED)) {
            return OutputSeries { metas: OnceLock::new(), are_sorted: *are_sorted, drop_name };
        }
        let (metas, are_sorted) = named(ctx, set, drop_name);
        if let Some(derived) = derived {
            derived.keep(ARE_SORTED, &Arc::new(are_sorted), size_of::<bool>());
        }
        OutputSeries { metas: OnceLock::from(metas), are_sorted, drop_name }
    }

    /// Returns the series, which are those of the same set.
    pub(in crate::exec) fn metas(&self, ctx: &Context, set: &dyn SeriesSet) -> &[SeriesMeta] {
        self.metas.get_or_init(|| named(ctx, set, self.drop_name).0)
    }

    /// Returns the series that were known at once.
    pub(in crate::exec) fn known_metas(&self) -> &[SeriesMeta] {
        self.metas.get().map_or(&[], Vec::as_slice)
    }
}

/// Returns the series of a set as [`OutputSeries::of_set`], and whether they are known to be sorted.
fn named(ctx: &Context, set: &dyn SeriesSet, drop_name: bool) -> (Vec<SeriesMeta>, bool) {
    let drops_now = drop_name && !ctx.delayed_name_removal;
    let first_name = (drops_now && !set.is_empty()).then(|| leading_name(set.labels(0)));
    let first_name = first_name.flatten();
    let mut are_sorted = !drop_name || first_name.is_some();
    let output = |index: usize| {
        if index + LABELS_AHEAD < set.len() {
            prefetch(set.labels(index + LABELS_AHEAD).as_bytes());
        }
        let labels = set.labels(index);
        if let Some(name) = &first_name
            && let Some(labels) = without_leading(labels, name)
        {
            return SeriesMeta { labels, drop_name };
        }
        let meta = SeriesMeta { labels: labels.clone(), drop_name: false };
        are_sorted &= !drop_name;
        if drop_name { meta.dropping_name(ctx) } else { meta }
    };
    let metas = (0..set.len()).map(output).collect();
    (metas, are_sorted)
}

/// Returns the packed name of the metric, if it is the first label.
fn leading_name(labels: &Labels) -> Option<Vec<u8>> {
    let (name, value) = labels.iter_bytes().next()?;
    let mut packed = Vec::new();
    push_packed(&mut packed, name, value);
    (name == METRIC_NAME.as_bytes()).then_some(packed)
}

/// Returns the labels after a packed name; `None` if they begin otherwise, or if others describe the
/// metric, too.
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

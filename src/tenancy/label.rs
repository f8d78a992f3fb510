//! The label of the tenant on the series of a write.

use model::Batch;
use model::labels::push_packed;

/// Separates the tenant from the metric in the names of stored metadata. No tenant has it.
const METADATA_SEPARATOR: char = '\0';

/// Returns the name under which the metadata of a metric of a tenant are stored.
pub(super) fn metadata_name(tenant: &str, metric: &str) -> String {
    format!("{tenant}{METADATA_SEPARATOR}{metric}")
}

/// Sets the label of a tenant on all series of a batch, instead of one of the same name, and assigns
/// the metadata of metrics to the tenant.
///
/// Returns `false`, and changes nothing, if the labels would take more than 4 GiB.
pub(crate) fn label_batch(batch: &mut Batch, label: &str, tenant: &str) -> bool {
    let added = label.len() + tenant.len() + 8;
    let bytes = batch.series.len().saturating_mul(added).saturating_add(batch.labels_arena.len());
    if u32::try_from(bytes).is_err() {
        return false;
    }
    let mut arena = Vec::with_capacity(bytes);
    for index in 0..batch.series.len() {
        let start = arena.len() as u32;
        push_with(&mut arena, batch, index, label, tenant);
        let series = &mut batch.series[index];
        (series.labels_start, series.labels_end) = (start, arena.len() as u32);
    }
    batch.labels_arena = arena;
    for metadata in &mut batch.metadata {
        metadata.metric = metadata_name(tenant, &metadata.metric);
    }
    true
}

/// Appends the labels of a series with the label.
fn push_with(arena: &mut Vec<u8>, batch: &Batch, index: usize, label: &str, tenant: &str) {
    let labels = batch.labels(index);
    let (mut is_pending, name, value) = (true, label.as_bytes(), tenant.as_bytes());
    for (other, other_value) in labels.iter_bytes() {
        if is_pending && name <= other {
            push_packed(arena, name, value);
            is_pending = false;
        }
        if other != name {
            push_packed(arena, other, other_value);
        }
    }
    if is_pending {
        push_packed(arena, name, value);
    }
}

#[cfg(test)]
mod tests {
    use model::{BatchMetadata, Labels, MetricKind};

    use super::*;

    #[test]
    fn the_label_is_set_in_order_and_overrides() {
        let cases: [&[(&str, &str)]; 5] = [
            &[],
            &[("__name__", "up"), ("job", "a")],
            &[("__name__", "up"), ("zone", "a")],
            &[("__name__", "up"), ("tenant_id", "other"), ("zone", "a")],
            &[("tenant_id", "a very long name of another tenant")],
        ];
        let mut batch = Batch::default();
        for pairs in cases {
            batch.push(&Labels::from_pairs(pairs.iter().copied()), &[(1, 1.0)]);
        }
        batch.metadata.push(BatchMetadata {
            metric: "up".to_owned(),
            kind: MetricKind::Gauge,
            help: String::new(),
            unit: String::new(),
        });
        assert!(label_batch(&mut batch, "tenant_id", "t"));
        let tenant = Labels::from_pairs([("tenant_id", "t")]);
        for (index, pairs) in cases.into_iter().enumerate() {
            let expected = Labels::from_pairs(pairs.iter().copied()).overridden_by(&tenant);
            assert_eq!(batch.labels(index), expected);
            assert_eq!(batch.samples(index), index..index + 1);
        }
        assert_eq!(batch.metadata[0].metric, "t\0up");
    }
}

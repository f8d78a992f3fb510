//! Sizes of batches.

use model::{Batch, BatchSeries};

/// Sizes of a batch, next to the length of its message.
///
/// The requests of a sender are alike. A batch with room for what the one before had is not moved
/// while it grows.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct BatchShape {
    message_bytes: usize,
    label_bytes: usize,
    series: usize,
    samples: usize,
}

impl BatchShape {
    /// Returns the shape of a batch that was decoded from a message.
    pub(super) fn of(batch: &Batch, message_bytes: usize) -> BatchShape {
        BatchShape {
            message_bytes,
            label_bytes: batch.labels_arena.len(),
            series: batch.series.len(),
            samples: batch.timestamps.len(),
        }
    }

    /// Returns an empty batch with room for a message of this shape, and an eighth more. No list gets
    /// more bytes than the message has.
    pub(super) fn batch(&self, message_bytes: usize) -> Batch {
        let room = |count: usize, item_bytes: usize| {
            let expected = count.saturating_mul(message_bytes) / self.message_bytes.max(1);
            (expected + expected / 8).min(message_bytes / item_bytes)
        };
        let samples = room(self.samples, size_of::<f64>());
        Batch {
            labels_arena: Vec::with_capacity(room(self.label_bytes, 1)),
            series: Vec::with_capacity(room(self.series, size_of::<BatchSeries>())),
            timestamps: Vec::with_capacity(samples),
            values: Vec::with_capacity(samples),
            ..Batch::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use model::Labels;
    use proptest::prelude::*;

    use super::*;

    /// A batch of series that have the same labels and number of samples.
    fn batch_of(series: usize, samples: usize) -> Batch {
        let mut batch = Batch::default();
        let labels = Labels::from_pairs([("__name__", "a_metric"), ("job", "api")]);
        (0..series).for_each(|_| batch.push(&labels, &vec![(0, 0.0); samples]));
        batch
    }

    fn capacities(batch: &Batch) -> [usize; 4] {
        let Batch { labels_arena, series, timestamps, values, .. } = batch;
        [labels_arena.capacity(), series.capacity(), timestamps.capacity(), values.capacity()]
    }

    proptest! {
        #[test]
        fn a_batch_of_the_same_shape_does_not_grow(
            series in 1usize..50,
            samples in 0usize..5,
            more in 1usize..4,
            bytes in 50usize..100,
        ) {
            let shape = BatchShape::of(&batch_of(series, samples), series * bytes);
            let mut batch = shape.batch(more * series * bytes);
            let before = capacities(&batch);
            let next = batch_of(more * series, samples);
            batch.labels_arena.extend(next.labels_arena);
            batch.series.extend(next.series);
            batch.timestamps.extend(next.timestamps);
            batch.values.extend(next.values);
            prop_assert_eq!(capacities(&batch), before);
        }

        #[test]
        fn lists_have_at_most_the_bytes_of_the_message(
            series in 0usize..50,
            message_bytes in 0usize..100,
            next_bytes in 0usize..1000,
        ) {
            let shape = BatchShape::of(&batch_of(series, 2), message_bytes);
            let [labels, series, times, values] = capacities(&shape.batch(next_bytes));
            let bytes = [labels, series * size_of::<BatchSeries>(), times * 8, values * 8];
            prop_assert!(bytes.into_iter().all(|bytes| bytes <= next_bytes), "{:?}", bytes);
        }
    }

    #[test]
    fn a_first_batch_has_no_room() {
        assert_eq!(capacities(&BatchShape::default().batch(1000)), [0; 4]);
    }
}

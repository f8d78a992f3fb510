//! Capacity of a batch, estimated from the previous one.

use model::{Batch, BatchSeries};

/// Maximum bytes of an empty batch, as a multiple of its message: labels of OTLP and remote write 2.0
/// are references in the message.
const BYTES_FACTOR_MAX: usize = 4;

/// Lengths of a batch's lists, and of the message that it was decoded from.
///
/// Requests of a sender are alike, so a batch for the next message is allocated at once instead of
/// growing by copies.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct BatchShape {
    message_bytes: usize,
    label_bytes: usize,
    series: usize,
    samples: usize,
}

impl BatchShape {
    /// Replaces the shape by that of a batch with series.
    pub(super) fn note(&mut self, batch: &Batch, message_bytes: usize) {
        if batch.series.is_empty() {
            return;
        }
        *self = BatchShape {
            message_bytes,
            label_bytes: batch.labels_arena.len(),
            series: batch.series.len(),
            samples: batch.timestamps.len(),
        };
    }

    /// Returns the room for a message of this shape and an eighth more; `None` if that exceeds
    /// [`BYTES_FACTOR_MAX`].
    pub(super) fn room(&self, message_bytes: usize) -> Option<BatchRoom> {
        let scaled = |count: usize| {
            let expected = count.saturating_mul(message_bytes) / self.message_bytes.max(1);
            expected.saturating_add(expected / 8)
        };
        let room = BatchRoom {
            label_bytes: scaled(self.label_bytes),
            series: scaled(self.series),
            samples: scaled(self.samples),
        };
        (room.bytes() <= message_bytes.saturating_mul(BYTES_FACTOR_MAX)).then_some(room)
    }
}

/// Capacity of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchRoom {
    label_bytes: usize,
    series: usize,
    samples: usize,
}

impl BatchRoom {
    /// Returns the bytes that the batch takes.
    pub(super) fn bytes(&self) -> usize {
        let sample_bytes = size_of::<i64>() + size_of::<f64>();
        self.series
            .saturating_mul(size_of::<BatchSeries>())
            .saturating_add(self.samples.saturating_mul(sample_bytes))
            .saturating_add(self.label_bytes)
    }

    /// Returns an empty batch with this room.
    pub(super) fn allocate(&self) -> Batch {
        Batch {
            labels_arena: Vec::with_capacity(self.label_bytes),
            series: Vec::with_capacity(self.series),
            timestamps: Vec::with_capacity(self.samples),
            values: Vec::with_capacity(self.samples),
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

    fn shape_of(batch: &Batch, message_bytes: usize) -> BatchShape {
        let mut shape = BatchShape::default();
        shape.note(batch, message_bytes);
        shape
    }

    fn allocate(shape: &BatchShape, message_bytes: usize) -> Batch {
        shape.room(message_bytes).map_or_else(Batch::default, |room| room.allocate())
    }

    fn capacities(batch: &Batch) -> [usize; 4] {
        let Batch { labels_arena, series, timestamps, values, .. } = batch;
        [labels_arena.capacity(), series.capacity(), timestamps.capacity(), values.capacity()]
    }

    proptest! {
        #[test]
        fn a_batch_with_up_to_an_eighth_more_does_not_grow(
            series in 1usize..50,
            samples in 0usize..5,
            factor in 1usize..4,
            eighth_share in 0usize..8,
            // A series takes up to 129 bytes, an eighth more included.
            series_bytes in 40usize..100,
        ) {
            let shape = shape_of(&batch_of(series, samples), series * series_bytes);
            let mut batch = allocate(&shape, factor * series * series_bytes);
            let before = capacities(&batch);
            let next = batch_of(factor * series * (64 + eighth_share) / 64, samples);
            batch.labels_arena.extend(next.labels_arena);
            batch.series.extend(next.series);
            batch.timestamps.extend(next.timestamps);
            batch.values.extend(next.values);
            prop_assert_eq!(capacities(&batch), before);
        }

        #[test]
        fn the_message_limits_the_bytes(
            series in 0usize..50,
            message_bytes in 0usize..5000,
            next_bytes in 0usize..5000,
        ) {
            let shape = shape_of(&batch_of(series, 2), message_bytes);
            let batch = allocate(&shape, next_bytes);
            let bytes = shape.room(next_bytes).map_or(0, |room| room.bytes());
            prop_assert_eq!(batch.memory_bytes(), bytes);
            prop_assert!(batch.memory_bytes() <= BYTES_FACTOR_MAX * next_bytes);
        }
    }

    #[test]
    fn batches_without_series_say_nothing() {
        let mut shape = BatchShape::default();
        assert_eq!(capacities(&allocate(&shape, 1000)), [0; 4]);
        shape.note(&batch_of(10, 1), 1000);
        shape.note(&batch_of(0, 0), 10);
        assert!(capacities(&allocate(&shape, 1000)).into_iter().all(|capacity| capacity >= 10));
    }
}

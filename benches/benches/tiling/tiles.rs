//! Rung of the engine, from the query's text to its result.

use std::sync::Arc;

use benches::data::{GROUP_LABEL, Kind, Shape, labels, samples};
use engine::steps::Steps;
use engine::tile::TileShape;
use engine::{Engine, EngineOptions, QueryOptions, QueryOutput, Value};
use model::{Batch, Source};
use storage::{Store, StoreOptions};
use tokio::runtime::Runtime;

use crate::ladder::Sums;

/// Limit of each cache: all data fit.
const CACHE_BYTES: usize = 512 << 20;
/// Series in a write.
const SERIES_AT_ONCE: usize = 500;

/// Returns a sealed store of the data in memory, which keeps decoded columns after the first query.
pub fn sealed_store(runtime: &Runtime, shape: Shape, kind: Kind) -> Arc<dyn Source> {
    let options = StoreOptions {
        cache_bytes_max: CACHE_BYTES,
        index_cache_bytes_max: CACHE_BYTES,
        columns_bytes_max: CACHE_BYTES,
        ahead_max_ms: None,
        background: false,
        ..StoreOptions::default()
    };
    runtime.block_on(async {
        let store = Store::open("memory:///", options).await.expect("a store in memory opens");
        for first in (0..shape.series).step_by(SERIES_AT_ONCE) {
            let mut batch = Batch::default();
            for index in first..(first + SERIES_AT_ONCE).min(shape.series) {
                let (times, values) = samples(index, shape.samples, kind);
                let samples: Vec<(i64, f64)> = times.into_iter().zip(values).collect();
                batch.push(&labels(index, shape.groups), &samples);
            }
            store.append(batch).await.expect("the store takes samples");
        }
        store.seal_all().await.expect("memory takes the windows");
        Arc::new(store) as Arc<dyn Source>
    })
}

/// Engine over a source.
pub struct Tiles {
    runtime: Arc<Runtime>,
    engine: Engine,
    source: Arc<dyn Source>,
    steps: Steps,
    options: QueryOptions,
}

impl Tiles {
    pub fn new(
        runtime: &Arc<Runtime>,
        source: Arc<dyn Source>,
        steps: Steps,
        lookback_ms: i64,
        threads: usize,
        tile_shape: TileShape,
    ) -> Tiles {
        let options = EngineOptions { threads, tile_shape, ..EngineOptions::default() };
        let engine = Engine::new(options);
        let options = QueryOptions { lookback_ms, ..QueryOptions::default() };
        Tiles { runtime: Arc::clone(runtime), engine, source, steps, options }
    }

    /// Evaluates a query at all steps.
    pub fn run(&self, query: &str) -> QueryOutput {
        let Steps { start_ms, step_ms, .. } = self.steps;
        let answer = self.engine.range(
            Arc::clone(&self.source),
            query,
            start_ms,
            self.steps.end_ms(),
            step_ms,
            &self.options,
        );
        self.runtime.block_on(answer).expect("the query is good")
    }

    /// Returns the result in the form of the other rungs: groups by their label's value.
    pub fn sums(&self, query: &str) -> Sums {
        let Value::Grid { steps, mut rows } = self.run(query).value else {
            panic!("a range query answers on a grid");
        };
        assert_eq!(steps, self.steps);
        rows.sort_by(|a, b| a.labels.get(GROUP_LABEL).cmp(b.labels.get(GROUP_LABEL)));
        let cells = rows.iter().flat_map(|row| {
            (0..steps.count).map(|i| if row.is_present(i) { row.values[i] } else { f64::NAN })
        });
        cells.collect()
    }
}

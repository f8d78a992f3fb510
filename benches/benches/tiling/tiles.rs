//! Rung of the engine, from the query's text to its result.

use std::sync::Arc;

use benches::data::GROUP_LABEL;
use engine::steps::Steps;
use engine::tile::TileShape;
use engine::{Engine, EngineOptions, QueryOptions, QueryOutput, Value};
use futures::executor::block_on;
use model::Source;

use crate::ladder::Sums;

/// Engine over a source.
pub struct Tiles {
    engine: Engine,
    source: Arc<dyn Source>,
    steps: Steps,
    options: QueryOptions,
}

impl Tiles {
    pub fn new(
        source: Arc<dyn Source>,
        steps: Steps,
        lookback_ms: i64,
        threads: usize,
        tile_shape: TileShape,
    ) -> Tiles {
        let options = EngineOptions { threads, tile_shape, ..EngineOptions::default() };
        let engine = Engine::new(options);
        let options = QueryOptions { lookback_ms, ..QueryOptions::default() };
        Tiles { engine, source, steps, options }
    }

    /// Evaluates a query at all steps.
    pub fn run(&self, query: &str) -> QueryOutput {
        let Steps { start_ms, step_ms, .. } = self.steps;
        block_on(self.engine.range(
            Arc::clone(&self.source),
            query,
            start_ms,
            self.steps.end_ms(),
            step_ms,
            &self.options,
        ))
        .expect("the query is good")
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

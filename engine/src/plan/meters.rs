//! Cost counters of the nodes of a running plan, filled by `exec::measure`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;

use super::{Node, NodeKind, Plan, RangeInput, RangeOrigin};

/// Cost of one node so far, on all threads.
#[derive(Debug, Default)]
pub struct Meter {
    nanos: AtomicU64,
    series: AtomicU64,
    samples: AtomicU64,
    summarized: AtomicU64,
}

impl Meter {
    /// Returns the compute time of the node itself, summed over threads.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    /// Returns the number of series in the node's result.
    pub fn series_count(&self) -> u64 {
        self.series.load(Ordering::Relaxed)
    }

    /// Returns the number of samples that the node decoded.
    pub fn sample_count(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    /// Returns the number of windows that the node read from stored summaries.
    pub fn summarized_count(&self) -> u64 {
        self.summarized.load(Ordering::Relaxed)
    }

    /// Adds compute time of a thread.
    pub(crate) fn add_time(&self, elapsed: Duration) {
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Sets the number of series in the node's result.
    pub(crate) fn set_series_count(&self, count: usize) {
        self.series.store(count as u64, Ordering::Relaxed);
    }

    /// Adds decoded samples.
    pub(crate) fn add_samples(&self, count: usize) {
        self.samples.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Adds windows that were read from stored summaries.
    pub(crate) fn add_summarized(&self, count: usize) {
        self.summarized.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Meters of a running query.
#[derive(Debug)]
pub struct Meters {
    /// Meter of the query itself: work on the value of the root.
    query: Arc<Meter>,
    /// By address of the node: a plan does not move while it is executed.
    nodes: HashMap<usize, Arc<Meter>, foldhash::fast::RandomState>,
    /// Meters of the selectors, by number.
    loads: Vec<Arc<Meter>>,
}

impl Meters {
    /// Returns meters for all nodes of a plan, all zero.
    pub fn new(plan: &Plan) -> Meters {
        let loads = plan.selections.iter().map(|_| Arc::default()).collect();
        let mut meters = Meters { query: Arc::default(), nodes: HashMap::default(), loads };
        meters.add(&plan.root);
        meters
    }

    fn add(&mut self, node: &Node) {
        self.nodes.insert(place(node), Arc::default());
        match &node.kind {
            NodeKind::Number(_) | NodeKind::String(_) | NodeKind::Lookup(_) => {}
            NodeKind::Range(input) => self.add_inner(input),
            NodeKind::Rollup(rollup) => {
                rollup.args.iter().for_each(|arg| self.add(arg));
                self.add_inner(&rollup.input);
            }
            NodeKind::Call { args, .. } => args.iter().for_each(|arg| self.add(arg)),
            NodeKind::Negate(inner) | NodeKind::Invariant(inner) => self.add(inner),
            NodeKind::Binary { lhs, rhs, .. } => {
                self.add(lhs);
                self.add(rhs);
            }
            NodeKind::Aggregate(aggregation) => {
                aggregation.param.iter().for_each(|param| self.add(param));
                self.add(&aggregation.input);
            }
        }
    }

    fn add_inner(&mut self, input: &RangeInput) {
        if let RangeOrigin::Subquery(Some(inner)) = &input.origin {
            self.add(inner);
        }
    }

    /// Returns the meter of the query itself.
    pub fn query(&self) -> &Arc<Meter> {
        &self.query
    }

    /// Returns the meter of a node, or `None` if it is not part of this plan.
    pub fn node(&self, node: &Node) -> Option<&Arc<Meter>> {
        self.nodes.get(&place(node))
    }

    /// Returns the meter of a selector.
    pub fn load(&self, selector: usize) -> Option<&Arc<Meter>> {
        self.loads.get(selector)
    }
}

fn place(node: &Node) -> usize {
    std::ptr::from_ref(node).addr()
}

//! The plan as a tree of nodes, or as text with one node per line.

use std::fmt::{self, Write as _};
use std::time::Duration;

use model::{BudgetError, Checkpoint, ObjectStoreCost, SeriesSet};

use crate::parse::ast::{RangeMode, ValueType};
use crate::plan::{
    Aggregation, Lookup, LookupValue, Meters, Node, NodeKind, Plan, RangeInput, RangeOrigin, Rollup,
};
use crate::steps::{LookTimes, Reach, Steps};

/// A node of an explained plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// Operation in one word.
    pub node: &'static str,
    /// Details of the operation.
    pub detail: String,
    /// Loaded series, for a selector.
    pub load: Option<Load>,
    /// Cost, if the plan was executed.
    pub cost: Option<NodeCost>,
    /// Inputs.
    pub children: Vec<Explained>,
}

/// Cost of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCost {
    /// Number of series in the result, if it consists of series.
    pub series: Option<u64>,
    /// Compute time summed over threads; for a selector, the time of loading.
    pub own: Duration,
}

/// Selection that a selector loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// Selector number.
    pub selector: usize,
    /// Matchers in PromQL.
    pub matchers: Vec<String>,
    /// First loaded time, in ms since the epoch.
    pub start_ms: i64,
    /// Last loaded time, in ms since the epoch.
    pub end_ms: i64,
    /// Amount of loaded data; `None` if nothing was loaded.
    pub figures: Option<LoadFigures>,
}

/// Cost of loading a selection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadCost {
    /// Elapsed time.
    pub elapsed: Duration,
    /// Reads from the object store.
    pub object_store: ObjectStoreCost,
}

/// Amount of data that a selector loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadFigures {
    /// Number of matching series.
    pub series: u64,
    /// Maximum number of samples in the range.
    pub samples: u64,
    /// Bytes of the encoded samples.
    pub bytes: u64,
    /// Cost of loading.
    pub cost: LoadCost,
    /// Number of decoded samples; samples that two nodes read count twice.
    pub decoded: u64,
    /// Windows of the series, if facts of them are enough.
    pub windows: Option<WindowCounts>,
}

/// Numbers of windows that a selector reads facts of, summed over series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowCounts {
    /// Windows of all steps.
    pub all: u64,
    /// Windows that were read from stored summaries, without a sample.
    pub summarized: u64,
}

impl LoadFigures {
    /// Returns the figures of loaded series before they are decoded.
    ///
    /// Errors: errors of the checkpoint.
    pub fn of(
        set: &dyn SeriesSet,
        cost: LoadCost,
        checkpoint: &mut Checkpoint,
    ) -> Result<LoadFigures, BudgetError> {
        let mut samples = 0u64;
        for index in 0..set.len() {
            checkpoint.work(1)?;
            samples = samples.saturating_add(set.sample_count_estimate(index) as u64);
        }
        let (series, bytes) = (set.len() as u64, set.encoded_bytes() as u64);
        Ok(LoadFigures { series, samples, bytes, cost, decoded: 0, windows: None })
    }
}

/// Measurements of an executed plan.
pub struct Figures<'a> {
    /// Meters of the nodes.
    pub meters: &'a Meters,
    /// Figures of the selectors, by number.
    pub loads: Vec<LoadFigures>,
}

impl Plan {
    /// Returns the plan as a tree of nodes, with measurements if it was executed.
    pub fn explain(&self, figures: Option<&Figures<'_>>) -> Explained {
        let tree = Tree { plan: self, figures };
        let detail = format!("over {}", Grid(self.root.steps));
        let mut query = Explained::with("query", detail, vec![tree.node(&self.root)]);
        query.cost = figures.map(|figures| {
            let own = figures.meters.query().busy();
            NodeCost { series: None, own }
        });
        query
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.explain(None).fmt(f)
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

impl Explained {
    fn with(node: &'static str, detail: impl Into<String>, children: Vec<Explained>) -> Explained {
        Explained { node, detail: detail.into(), load: None, cost: None, children }
    }

    /// Returns the depth, including this node.
    pub fn levels(&self) -> usize {
        1 + self.children.iter().map(Explained::levels).max().unwrap_or_default()
    }

    /// Returns the time of this node and all its descendants.
    pub fn whole(&self) -> Duration {
        let own = self.cost.map_or(Duration::ZERO, |cost| cost.own);
        self.children.iter().fold(own, |sum, child| sum.saturating_add(child.whole()))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        write!(f, "{:indent$}{}", "", self.node, indent = depth * 2)?;
        if !self.detail.is_empty() {
            write!(f, " {}", self.detail)?;
        }
        writeln!(f)?;
        self.children.iter().try_for_each(|child| child.write(f, depth + 1))
    }
}

struct Tree<'a> {
    plan: &'a Plan,
    figures: Option<&'a Figures<'a>>,
}

impl Tree<'_> {
    fn node(&self, node: &Node) -> Explained {
        let mut explained = self.described(node);
        let meter = self.figures.and_then(|figures| figures.meters.node(node));
        explained.cost = meter.map(|meter| {
            let is_vector = node.value_type == ValueType::Vector;
            NodeCost { series: is_vector.then(|| meter.series_count()), own: meter.busy() }
        });
        explained
    }

    fn described(&self, node: &Node) -> Explained {
        match &node.kind {
            NodeKind::Number(value) => Explained::with("number", value.to_string(), vec![]),
            NodeKind::String(text) => Explained::with("string", format!("{text:?}"), vec![]),
            NodeKind::Lookup(lookup) => self.lookup(lookup),
            NodeKind::Range(input) => self.range(input),
            NodeKind::Rollup(rollup) => self.rollup(rollup),
            NodeKind::Call { call, args } => {
                let args = args.iter().map(|arg| self.node(arg)).collect();
                Explained::with("call", call.function.name, args)
            }
            NodeKind::Negate(operand) => Explained::with("negate", "", vec![self.node(operand)]),
            NodeKind::Binary { binary, lhs, rhs } => {
                let bool = if binary.is_bool { " bool" } else { "" };
                let detail = format!("{}{bool}", binary.op.as_str());
                Explained::with("binary", detail, vec![self.node(lhs), self.node(rhs)])
            }
            NodeKind::Aggregate(aggregation) => self.aggregate(aggregation),
            NodeKind::Invariant(inner) => Explained::with("once", "", vec![self.node(inner)]),
        }
    }

    fn aggregate(&self, aggregation: &Aggregation) -> Explained {
        let mut detail = aggregation.op.as_str().to_owned();
        if aggregation.is_without || !aggregation.grouping.is_empty() {
            let word = if aggregation.is_without { "without" } else { "by" };
            // Writing to a string cannot fail.
            let _ = write!(detail, " {word} ({})", aggregation.grouping.join(", "));
        }
        let param = aggregation.param.as_ref().map(|param| self.node(param));
        let children = param.into_iter().chain([self.node(&aggregation.input)]).collect();
        Explained::with("aggregate", detail, children)
    }

    fn rollup(&self, rollup: &Rollup) -> Explained {
        let args = rollup.args.iter().map(|arg| self.node(arg));
        let children = args.chain([self.range(&rollup.input)]).collect();
        Explained::with("rollup", rollup.call.function.name, children)
    }

    fn range(&self, input: &RangeInput) -> Explained {
        let (range, times, mode) = (input.range_ms, Times(input.times), mode_name(input.mode));
        match &input.origin {
            RangeOrigin::Selector(selector) => {
                let detail = format!("ranges of {range} ms{mode} {times}");
                Explained::with("select", detail, vec![self.selection(*selector)])
            }
            RangeOrigin::Subquery(None) => {
                let detail = format!("ranges of {range} ms {times}, no step");
                Explained::with("subquery", detail, vec![])
            }
            RangeOrigin::Subquery(Some(inner)) => {
                let detail = format!("ranges of {range} ms {times}, over {}", Grid(inner.steps));
                Explained::with("subquery", detail, vec![self.node(inner)])
            }
        }
    }

    fn lookup(&self, lookup: &Lookup) -> Explained {
        let Reach { back_ms, ahead_ms } = lookup.reach;
        let times = Times(lookup.times);
        let word = match lookup.value {
            LookupValue::Sample => "newest samples",
            LookupValue::Timestamp | LookupValue::FloatTimestamp => "times of the newest samples",
            LookupValue::StartTimestamp => "starts of the newest samples",
            LookupValue::Smoothed => "smoothed values",
        };
        let ahead = if ahead_ms > 0 { format!(", ahead {ahead_ms} ms") } else { String::new() };
        let detail = format!("{word} {times}, back {back_ms} ms{ahead}");
        Explained::with("select", detail, vec![self.selection(lookup.selector)])
    }

    fn selection(&self, selector: usize) -> Explained {
        let selection = &self.plan.selections[selector];
        let matchers: Vec<String> = selection.matchers.iter().map(ToString::to_string).collect();
        let (start_ms, end_ms) = (selection.times.start_ms, selection.times.end_ms);
        let listed = matchers.join(", ");
        let detail = format!("#{selector} {{{listed}}} from {start_ms} to {end_ms}");
        let meter = self.figures.and_then(|figures| figures.meters.load(selector));
        let loaded = self.figures.and_then(|figures| figures.loads.get(selector));
        let measured = meter.zip(loaded);
        let figures = measured.map(|(meter, loaded)| {
            let of_facts = selection.windows.filter(|wanted| wanted.part.is_facts());
            let windows = of_facts.map(|wanted| WindowCounts {
                all: loaded.series.saturating_mul(wanted.windows.count as u64),
                summarized: meter.summarized_count(),
            });
            LoadFigures { decoded: meter.sample_count(), windows, ..*loaded }
        });
        let cost = measured.map(|(meter, loaded)| {
            let own = meter.busy().saturating_add(loaded.cost.elapsed);
            NodeCost { series: Some(loaded.series), own }
        });
        let load = Some(Load { selector, matchers, start_ms, end_ms, figures });
        Explained { node: "load", detail, load, cost, children: vec![] }
    }
}

fn mode_name(mode: RangeMode) -> &'static str {
    match mode {
        RangeMode::Plain => "",
        RangeMode::Anchored => " anchored",
        RangeMode::Smoothed => " smoothed",
    }
}

/// Formats a grid of steps.
struct Grid(Steps);

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Steps { start_ms, step_ms, count } = self.0;
        match count {
            1 => write!(f, "1 step at {start_ms}"),
            _ => write!(f, "{count} steps of {step_ms} ms from {start_ms} to {}", self.0.end_ms()),
        }
    }
}

/// Formats lookup times.
struct Times(LookTimes);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = self.0;
        match (times.count, times.step_ms) {
            (1, _) | (_, 0) => write!(f, "at {}", times.first_ms),
            _ => write!(f, "from {} to {}", times.first_ms, times.last_ms()),
        }
    }
}

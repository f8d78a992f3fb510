//! The plan as a tree to read: of nodes, or of text, one node a line.

use std::fmt::{self, Write as _};

use model::{BudgetError, SeriesSet, Watch};

use crate::parse::ast::RangeMode;
use crate::plan::{
    Aggregation, Instant, InstantValue, Node, NodeKind, Plan, RangeInput, RangeOrigin, Rollup,
};
use crate::window::{LookTimes, Reach, Steps};

/// A node of an explained plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// What it does, in a word.
    pub node: &'static str,
    /// How it does it.
    pub detail: String,
    /// Which series it loads, if it is a selector.
    pub load: Option<Load>,
    /// What it takes its input from.
    pub children: Vec<Explained>,
}

/// What a selector loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The number of the selector.
    pub selector: usize,
    /// Its matchers.
    pub matchers: Vec<String>,
    /// The first time that it loads, in ms since the epoch.
    pub start_ms: i64,
    /// The last time that it loads, in ms since the epoch.
    pub end_ms: i64,
    /// About how much that is; `None` where nothing has been loaded.
    pub estimate: Option<Estimate>,
}

/// About how much a selector loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// How many series matched.
    pub series: u64,
    /// The most samples that they hold in the range.
    pub samples: u64,
    /// The bytes of their encoded samples.
    pub bytes: u64,
}

impl Estimate {
    /// What is known of loaded series before they are decoded.
    ///
    /// Errors: those of the watch.
    pub fn of(set: &dyn SeriesSet, watch: &mut Watch) -> Result<Estimate, BudgetError> {
        let mut samples = 0u64;
        for index in 0..set.len() {
            watch.work(1)?;
            samples = samples.saturating_add(set.sample_count_estimate(index) as u64);
        }
        Ok(Estimate { series: set.len() as u64, samples, bytes: set.encoded_bytes() as u64 })
    }
}

impl Plan {
    /// The plan as a tree of nodes. `estimates` are those of its selectors, by number; there
    /// may be none.
    pub fn explain(&self, estimates: &[Estimate]) -> Explained {
        let tree = Tree { plan: self, estimates };
        let detail = format!("over {}", Grid(self.root.steps));
        Explained::with("query", detail, vec![tree.node(&self.root)])
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.explain(&[]).write(f, 0)
    }
}

impl Explained {
    fn with(node: &'static str, detail: impl Into<String>, children: Vec<Explained>) -> Explained {
        Explained { node, detail: detail.into(), load: None, children }
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
    estimates: &'a [Estimate],
}

impl Tree<'_> {
    fn node(&self, node: &Node) -> Explained {
        match &node.kind {
            NodeKind::Number(value) => Explained::with("number", value.to_string(), vec![]),
            NodeKind::String(text) => Explained::with("string", format!("{text:?}"), vec![]),
            NodeKind::Instant(instant) => self.instant(instant),
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
            // Writing to a text cannot fail.
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

    fn instant(&self, instant: &Instant) -> Explained {
        let Reach { back_ms, ahead_ms } = instant.reach;
        let times = Times(instant.times);
        let word = match instant.yields {
            InstantValue::Sample => "newest samples",
            InstantValue::Timestamp | InstantValue::FloatTimestamp => "times of the newest samples",
            InstantValue::StartTimestamp => "starts of the newest samples",
            InstantValue::Smoothed => "smoothed values",
        };
        let ahead = if ahead_ms > 0 { format!(", ahead {ahead_ms} ms") } else { String::new() };
        let detail = format!("{word} {times}, back {back_ms} ms{ahead}");
        Explained::with("select", detail, vec![self.selection(instant.selector)])
    }

    fn selection(&self, selector: usize) -> Explained {
        let selection = &self.plan.selections[selector];
        let matchers: Vec<String> = selection.matchers.iter().map(ToString::to_string).collect();
        let (start_ms, end_ms) = (selection.start_ms, selection.end_ms);
        let listed = matchers.join(", ");
        let detail = format!("#{selector} {{{listed}}} from {start_ms} to {end_ms}");
        let estimate = self.estimates.get(selector).copied();
        let load = Some(Load { selector, matchers, start_ms, end_ms, estimate });
        Explained { node: "load", detail, load, children: vec![] }
    }
}

fn mode_name(mode: RangeMode) -> &'static str {
    match mode {
        RangeMode::Plain => "",
        RangeMode::Anchored => " anchored",
        RangeMode::Smoothed => " smoothed",
    }
}

/// A grid of steps in words.
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

/// The times looked at in words.
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

//! The plan as text: a tree, one node a line.

use std::fmt::{self, Write as _};

use crate::parse::ast::RangeMode;
use crate::plan::{
    Aggregation, Instant, InstantValue, Node, NodeKind, Plan, RangeInput, RangeOrigin, Rollup,
};
use crate::window::{LookTimes, Reach, Steps};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "query over {}", Grid(self.root.steps))?;
        Tree { plan: self, f }.node(&self.root, 1)
    }
}

struct Tree<'a, 'b> {
    plan: &'a Plan,
    f: &'a mut fmt::Formatter<'b>,
}

impl Tree<'_, '_> {
    fn line(&mut self, depth: usize, text: fmt::Arguments<'_>) -> fmt::Result {
        writeln!(self.f, "{:indent$}{text}", "", indent = depth * 2)
    }

    fn node(&mut self, node: &Node, depth: usize) -> fmt::Result {
        match &node.kind {
            NodeKind::Number(value) => self.line(depth, format_args!("number {value}")),
            NodeKind::String(text) => self.line(depth, format_args!("string {text:?}")),
            NodeKind::Instant(instant) => self.instant(instant, depth),
            NodeKind::Range(input) => self.range(input, depth),
            NodeKind::Rollup(rollup) => self.rollup(rollup, depth),
            NodeKind::Call { call, args } => {
                self.line(depth, format_args!("call {}", call.function.name))?;
                args.iter().try_for_each(|arg| self.node(arg, depth + 1))
            }
            NodeKind::Negate(operand) => {
                self.line(depth, format_args!("negate"))?;
                self.node(operand, depth + 1)
            }
            NodeKind::Binary { binary, lhs, rhs } => {
                let bool = if binary.is_bool { " bool" } else { "" };
                self.line(depth, format_args!("binary {}{bool}", binary.op.as_str()))?;
                self.node(lhs, depth + 1)?;
                self.node(rhs, depth + 1)
            }
            NodeKind::Aggregate(aggregation) => self.aggregate(aggregation, depth),
            NodeKind::Invariant(inner) => {
                self.line(depth, format_args!("once"))?;
                self.node(inner, depth + 1)
            }
        }
    }

    fn aggregate(&mut self, aggregation: &Aggregation, depth: usize) -> fmt::Result {
        let mut text = format!("aggregate {}", aggregation.op.as_str());
        if aggregation.is_without || !aggregation.grouping.is_empty() {
            let word = if aggregation.is_without { "without" } else { "by" };
            write!(text, " {word} ({})", aggregation.grouping.join(", "))?;
        }
        self.line(depth, format_args!("{text}"))?;
        if let Some(param) = &aggregation.param {
            self.node(param, depth + 1)?;
        }
        self.node(&aggregation.input, depth + 1)
    }

    fn rollup(&mut self, rollup: &Rollup, depth: usize) -> fmt::Result {
        self.line(depth, format_args!("rollup {}", rollup.call.function.name))?;
        rollup.args.iter().try_for_each(|arg| self.node(arg, depth + 1))?;
        self.range(&rollup.input, depth + 1)
    }

    fn range(&mut self, input: &RangeInput, depth: usize) -> fmt::Result {
        let (range, times, mode) = (input.range_ms, Times(input.times), mode_name(input.mode));
        match &input.origin {
            RangeOrigin::Selector(selector) => {
                self.line(depth, format_args!("select ranges of {range} ms{mode} {times}"))?;
                self.selection(*selector, depth + 1)
            }
            RangeOrigin::Subquery(None) => {
                self.line(depth, format_args!("subquery ranges of {range} ms {times}, no step"))
            }
            RangeOrigin::Subquery(Some(inner)) => {
                let grid = Grid(inner.steps);
                self.line(
                    depth,
                    format_args!("subquery ranges of {range} ms {times}, over {grid}"),
                )?;
                self.node(inner, depth + 1)
            }
        }
    }

    fn instant(&mut self, instant: &Instant, depth: usize) -> fmt::Result {
        let Reach { back_ms, ahead_ms } = instant.reach;
        let times = Times(instant.times);
        let word = match instant.yields {
            InstantValue::Sample => "newest samples",
            InstantValue::Timestamp => "times of the newest samples",
            InstantValue::Smoothed => "smoothed values",
        };
        let ahead = if ahead_ms > 0 { format!(", ahead {ahead_ms} ms") } else { String::new() };
        self.line(depth, format_args!("select {word} {times}, back {back_ms} ms{ahead}"))?;
        self.selection(instant.selector, depth + 1)
    }

    fn selection(&mut self, selector: usize, depth: usize) -> fmt::Result {
        let selection = &self.plan.selections[selector];
        let matchers: Vec<String> = selection.matchers.iter().map(ToString::to_string).collect();
        let (start, end) = (selection.start_ms, selection.end_ms);
        self.line(
            depth,
            format_args!("load #{selector} {{{}}} from {start} to {end}", matchers.join(", ")),
        )
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
